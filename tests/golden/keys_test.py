#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""keys.json is what make_keys.py derives from the definition of keys, which knows nothing of the library."""
import subprocess
import sys
from pathlib import Path

result = subprocess.run([sys.executable, str(Path(__file__).with_name("make_keys.py")), "--check"], check=False)
print("1 passed, 0 failed" if result.returncode == 0 else "0 passed, 1 failed")
sys.exit(result.returncode)
