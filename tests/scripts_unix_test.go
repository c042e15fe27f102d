//go:build unix

package tests

import (
	"os"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// leaveTerminal gives up the controlling terminal, so that no program asks the person who runs the
// tests. It fails in a script with a terminal of its own, and that is right.
func leaveTerminal() { _, _ = syscall.Setsid() }

// hangup sends SIGHUP.
func hangup(ts *testscript.TestScript, p *os.Process) { ts.Check(p.Signal(syscall.SIGHUP)) }
