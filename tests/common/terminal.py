"""Runs a command on a terminal of its own and talks to it.

usage: terminal.py SCRIPT COMMAND...
SCRIPT is JSON: a list of [WAIT_FOR, SEND]. Prints JSON: the terminal's output, the exit code (or
the signal, negative), and whether the terminal echoes and edits lines when the command has ended.
"""
import json
import os
import pty
import select
import sys
import termios
import time

script, command = json.loads(sys.argv[1]), sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
output, seen = b"", 0
deadline = time.time() + 20
while time.time() < deadline:
    if script and script[0][0].encode() in output[seen:]:
        seen = output.index(script[0][0].encode(), seen) + len(script[0][0].encode())
        os.write(master, script.pop(0)[1].encode())
        continue
    if not select.select([master], [], [], 0.05)[0]:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        continue
    try:
        chunk = os.read(master, 4096)
    except OSError:  # The other side is closed.
        break
    output += chunk
flags = termios.tcgetattr(master)[3]
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps({
    "output": output.decode(errors="replace"),
    "code": status,
    "restored": bool(flags & termios.ECHO and flags & termios.ICANON and flags & termios.ISIG),
    "left": script,
}))
