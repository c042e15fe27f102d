//go:build !unix

package tests

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

func leaveTerminal() {}

func hangup(ts *testscript.TestScript, _ *os.Process) { ts.Fatalf("there is no SIGHUP") }
