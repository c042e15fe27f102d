package hostile

import (
	"flag"
	"os"
	"testing"

	"github.com/fxfer/fxfer/internal/cli"
)

// serveEnv is the environment variable that makes this test program act as fxfer.
const serveEnv = "FXFER_HOSTILE_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	flag.Parse()
	os.Exit(compareTable(m.Run()))
}
