//go:build unix

package tests

import "syscall"

// leaveTerminal makes sure that nobody is asked who sits where the tests were started. It fails, rightly, in a script that has a
// terminal of its own.
func leaveTerminal() { _, _ = syscall.Setsid() }
