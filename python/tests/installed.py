"""Run by the interpreter of an environment that the wheel was installed into: whether all of it is there and works on process PID."""

import importlib.metadata
import json
import os
import subprocess
import sys

import slipstream

pid = sys.argv[1]
folder = os.path.dirname(slipstream.__file__)
assert folder.startswith(sys.prefix + os.sep), (folder, sys.prefix)
for file in ("py.typed", "__init__.pyi"):
    assert os.path.exists(os.path.join(folder, file)), file

about = importlib.metadata.distribution("slipstream-prof")
assert about.version == slipstream.__version__, about.version
licences = {os.path.basename(str(file)) for file in about.files if "licenses" in str(file)}
assert licences == {"LICENSE-MIT", "LICENSE-APACHE", "NOTICE"}, licences

slip = os.path.join(sys.prefix, "bin", "slip")
said = subprocess.run([slip, "--version"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=True)
assert said.stdout.split() == [b"slip", about.version.encode()], said.stdout
seen = subprocess.run([slip, "dump", "--pid", pid, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=True)
(process,) = json.loads(seen.stdout)["processes"]
names = {frame["name"] for thread in process["threads"] for frame in thread["frames"]}
assert {"outer.<locals>.inner", "Worker.work"} <= names, names

maps = "print('libslipmalloc.so' in open('/proc/self/maps').read())"
ran = subprocess.run([slip, "run", "--malloc", "--", sys.executable, "-c", maps], stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=True)
assert ran.stdout == b"True\n", ran.stdout
