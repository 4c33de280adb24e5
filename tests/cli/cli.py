# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: running kvpool, stores that go away, JSON against its schema."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import jsonschema

SOURCE = Path(os.environ.get("KVPOOL_SOURCE_DIR", Path(__file__).resolve().parents[2]))
KVPOOL = Path(os.environ.get("KVPOOL_BIN", SOURCE / "build" / "bin")) / "kvpool"
SANITIZED = bool(os.environ.get("KVPOOL_SANITIZE"))
SECONDS = 300


def run(*words, data=None, env=None, timeout=SECONDS):
    """Runs kvpool; stdout and stderr are text unless stdout is not UTF-8."""
    full = dict(os.environ)
    full.pop("KVPOOL", None)
    full.update(env or {})
    done = subprocess.run([str(KVPOOL), *map(str, words)], input=data, capture_output=True, timeout=timeout,
                          env=full, check=False)
    done.out = done.stdout.decode(errors="replace")
    done.err = done.stderr.decode(errors="replace")
    return done


def flip(path, byte, mask=0x40):
    """Flips bits of one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ mask]))


class Case(unittest.TestCase):
    """A folder of its own for each test, and no process of it left behind."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kvpool-cli-"))
        self.children = []

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
            for pipe in (child.stdout, child.stderr):
                if pipe:
                    pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, name="pool", size="32MiB"):
        return f"file:{self.folder / name}" + (f"?size={size}" if size else "")

    def make(self, name="pool", size="32MiB", *options):
        self.good("format", self.address(name, size), *options)
        return self.address(name, None)

    def serve(self, address, *options):
        read, write = os.pipe()
        child = subprocess.Popen([str(KVPOOL), "serve", address, "--ready-fd", str(write), "--json", *options], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[write])
        os.close(write)
        self.children.append(child)
        with os.fdopen(read) as ready:
            self.assertEqual(ready.readline(), "ready\n", "the owner did not start")
        return child

    def good(self, *words, code=0, **rest):
        done = run(*words, **rest)
        if code is not None:
            self.assertEqual(done.returncode, code, f"{words}: {done.out}{done.err}")
        return done

    def bad(self, *words, code, says="", **rest):
        """A failure with this exit code, whose message has the right form and says these words."""
        done = run(*words, **rest)
        self.assertEqual(done.returncode, code, f"{words}: {done.out}{done.err}")
        first = done.err.splitlines()[0] if done.err else ""
        self.assertRegex(first, r"^kvpool( [a-z]+)?: .+", f"{words}: {done.err}")
        self.assertIn(says.lower(), done.err.lower(), f"{words}")
        self.assertNotIn("internal error", done.err)
        return done

    def json(self, *words, code=0, schema=None, **rest):
        done = self.good(*words, "--json", code=code, **rest)
        data = json.loads(done.out)
        check(data, schema or words[0])
        return data


def check(data, name):
    schema = json.loads((SOURCE / "tools" / "schema" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def main():
    result = unittest.main(exit=False, verbosity=1, argv=[sys.argv[0], *sys.argv[1:]]).result
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
