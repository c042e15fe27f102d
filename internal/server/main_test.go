package server

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks once, at the end, that no goroutine is left: tests run at the same time.
// Most of them wait for the network or for limits, so more run at once than there are processors.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4")
	goleak.VerifyTestMain(m)
}
