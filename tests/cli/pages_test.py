#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: man pages, help and completions say what the option table says, no more and no less.
How: the table as JSON against the text of each; the bash completion is run."""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, SOURCE, Case, main  # noqa: E402

PAGES = SOURCE / "Documentation" / "man"


def plain(scdoc):
    """scdoc without its marks."""
    text = re.sub(r"\\(.)", "\x00\\1", scdoc)  # what is escaped is no mark
    text = re.sub(r"(?<!\x00)[*]|(?<![A-Za-z0-9\x00])_|(?<!\x00)_(?![A-Za-z0-9])", "", text)
    return " ".join(text.replace("\x00", "").split())


class Pages(Case):
    def setUp(self):
        super().setUp()
        self.table = [command for command in json.loads(self.good("debug", "options").out) if not command["hidden"]]

    def test_each_command_has_a_page_that_agrees(self):
        self.assertGreater(len(self.table), 15)
        for command in self.table:
            page = (PAGES / f"kvpool-{command['name']}.1.scd").read_text()
            text = plain(page)
            self.assertIn(f"kvpool-{command['name']} - {command['summary']}", text)
            shown = [option for option in command["options"] if not option["hidden"]]
            for option in shown:
                self.assertIn(" ".join(option["help"].split()), text, f"{command['name']} {option['name']}")
                head = (option["name"] + " " + option["value"]).strip() if not option["positional"] else option["name"]
                self.assertIn(head, text)
                if option["default"]:
                    self.assertIn(f"Default: {option['default']}.", text, f"{command['name']} {option['name']}")
                if option["choices"]:
                    self.assertIn(option["choices"], text)
            known = {option["name"] for option in shown} | {"--help"}
            heads = set(re.findall(r"^\*(--[a-z-]+)\*", page, re.MULTILINE))
            self.assertEqual(heads, {name for name in known if name.startswith("--")}, command["name"])

    def test_no_page_without_a_command(self):
        pages = {page.name[len("kvpool-"):-len(".1.scd")] for page in PAGES.glob("kvpool-*.1.scd")}
        self.assertEqual(pages, {command["name"] for command in self.table})
        listed = set(re.findall(r"^\*kvpool-([a-z]+)\*\(1\)$", (PAGES / "kvpool.1.scd").read_text(), re.MULTILINE))
        self.assertEqual(listed, pages)

    def test_help_agrees(self):
        for command in self.table:
            text = " ".join(self.good(command["name"], "--help").out.split())
            for option in command["options"]:
                if option["hidden"]:
                    self.assertNotIn(f" {option['name']} ", text)
                else:
                    self.assertIn(" ".join(option["help"].split()), text)

    def test_json_commands_have_a_schema(self):
        for command in self.table:
            if any(option["name"] == "--json" for option in command["options"]):
                self.assertTrue((SOURCE / "tools" / "schema" / f"{command['name']}.json").exists(), command["name"])

    def complete(self, script, *words):
        probe = (f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _kvpool; "
                 'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    def test_bash_completion(self):
        script = self.folder / "completion"
        script.write_text(self.good("completion", "bash").out)
        self.assertIn("replay", self.complete(script, "kvpool", "re"))
        self.assertLessEqual({command["name"] for command in self.table}, self.complete(script, "kvpool", '""'))
        for command in self.table:
            offered = self.complete(script, "kvpool", command["name"], "--")
            wanted = {option["name"] for option in command["options"]
                      if option["name"].startswith("--") and not option["hidden"]}
            self.assertEqual(offered, wanted | {"--help"}, command["name"])
        self.assertEqual(self.complete(script, "kvpool", "replay", "--verify", '""'), {"always", "off"})

    def test_zsh_completion_names_everything(self):
        text = self.good("completion", "zsh").out
        self.assertTrue(text.startswith("#compdef kvpool\n"))
        for command in self.table:
            self.assertIn(f"'{command['name']}:", text)
        self.bad("completion", "fish", code=2)

    def test_installed_completions_are_what_the_tool_prints(self):
        for shell, name in (("bash", "kvpool.bash"), ("zsh", "_kvpool")):
            self.assertEqual((SOURCE / "tools" / "completion" / name).read_text(),
                             self.good("completion", shell).out, f"kvpool completion {shell} > tools/completion/{name}")

    def test_hidden_commands_stay_hidden(self):
        self.assertNotIn("debug", self.good("--help").out)
        self.assertTrue(KVPOOL.exists())


if __name__ == "__main__":
    main()
