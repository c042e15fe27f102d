package fleet

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/hint"
)

// run runs "fxfer fleet" with these arguments.
func run(ctx context.Context, args ...string) error {
	c := New("test")
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	return c.ExecuteContext(ctx)
}

func TestParseNATS(t *testing.T) {
	t.Parallel()
	for s, fails := range map[string]string{
		"nats://host":           "",
		"tls://host:4222":       "",
		"tls://[::1]:4222":      "",
		"host:4222":             "not like",
		"host":                  "not like",
		"nats://":               "not like",
		"nats://host/path":      "not like",
		"nats://host?x=y":       "not like",
		"wss://host":            "not like",
		"nats://user:word@host": "secrets",
		"nats://token@host":     "secrets",
		"nats://host:\x00":      "invalid",
	} {
		_, err := parseNATS(s)
		if fails == "" {
			require.NoError(t, err, s)
		} else {
			require.ErrorContains(t, err, fails, s)
		}
	}
}

// Flags of the two kinds of queues exclude each other.
func TestQueueFlags(t *testing.T) {
	t.Parallel()
	const nats = "--nats=nats://127.0.0.1:1 "
	for args, fails := range map[string]string{
		"start --nats-ca=queue.go":                       "--nats-ca needs --nats",
		"start --nats-cert=queue.go --nats-key=queue.go": "--nats-cert needs --nats",
		"start --listen=:1 " + nats:                      "--listen is for a queue in the controller",
		"start --nats-cert=queue.go " + nats:             "need each other",
		"start --nats-key=queue.go " + nats:              "need each other",
		"status --controller=x " + nats:                  "--controller is for a queue in the controller",
		"status --credentials=x " + nats:                 "--credentials is for a queue in the controller",
		"worker --read=/ --nats-credentials=queue.go":    "--nats-credentials needs --nats",
		"submit --nats-key=queue.go / fxfer://x/y":       "--nats-key needs --nats",
		"status " + nats:                                 "nats://127.0.0.1:1: nobody answers there",
		"status --nats-ca=/none " + nats:                 "\"--nats-ca\" flag: open /none",
		"status --nats-credentials=/none " + nats:        "\"--nats-credentials\" flag: open /none",
		"start --nats-cert=/none --nats-key=/no " + nats: "\"--nats-cert\" flag: open /none",
	} {
		require.ErrorContains(t, run(t.Context(), strings.Fields(args)...), fails, args)
	}
}

// Without --controller, a member uses the address that its help names.
func TestMemberDefault(t *testing.T) {
	t.Parallel()
	var m member
	c := new(cobra.Command)
	m.add(c)
	require.Equal(t, c.Flags().Lookup("controller").DefValue, m.controller)
	require.Equal(t, "localhost:7435", m.controller)
}

// TestSubmitInterrupted: a signal ends submit while nobody answers, and that is what it says.
func TestSubmitInterrupted(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		c, err := silent.Accept()
		cancel()
		if err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	_, code := exit.Classify(run(ctx, "submit", "--nats", "nats://"+silent.Addr().String(), "/", "fxfer://x/y"))
	require.Equal(t, 130, code)
}

// TestListenTaken: a controller whose port is taken says so.
func TestListenTaken(t *testing.T) {
	t.Setenv("FXFER_HOME", t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for listen, want := range map[string]int{l.Addr().String(): 1, "127.0.0.1:99999": 2} {
		err := run(t.Context(), "start", "--listen", listen)
		require.Contains(t, hint.Of(err), "--listen", listen)
		_, code := exit.Classify(err)
		require.Equal(t, want, code, listen)
	}
}
