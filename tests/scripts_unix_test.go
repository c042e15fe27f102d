//go:build unix

package tests

import (
	"os"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// leaveTerminal makes sure that nobody is asked who sits where the tests were started. It fails, rightly, in a script that has a
// terminal of its own.
func leaveTerminal() { _, _ = syscall.Setsid() }

// hangup sends SIGHUP.
func hangup(ts *testscript.TestScript, p *os.Process) { ts.Check(p.Signal(syscall.SIGHUP)) }
