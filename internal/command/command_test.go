package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFeed: output ends with io.EOF if, and only if, the command succeeded, and then it is complete.
func TestFeed(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this needs /bin/sh")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]bool{
		"": true, "; exit 0": true, "; true | true": true, "; (sleep 0.01; echo -n x) &": true,
		"; exit 1": false, "; exit 255": false, "; kill -9 $$": false, "; kill $$": false, "; nosuchcommand": false,
		" && exit 7": false, "; exec >&-; exit 2": false,
		" || echo x": true,
	}
	if Warning("a | b") == "" {
		ends[" | cat"], ends["; nosuchcommand | cat"], ends[" | cat | (cat; exit 3) | cat"] = true, false, false
	}
	for end, good := range ends {
		size := random.IntN(300_000)
		var got []byte
		err := Feed(t.Context(), fmt.Sprintf("head -c %d /dev/zero%s", size, end), nil, nil, func(_ context.Context, out io.Reader) (err error) {
			got, err = io.ReadAll(out)
			return err
		})
		var failed *FailedError
		require.Equal(t, !good, errors.As(err, &failed), "%q: %v", end, err)
		require.Equal(t, good, err == nil, "%q: %v", end, err)
		require.LessOrEqual(t, len(got), size+1)
		if good {
			require.GreaterOrEqual(t, len(got), size, "%q", end)
		}
	}
}

// TestFeedEnds: when send returns early, the command is ended, and its end is no error.
func TestFeedEnds(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	var said strings.Builder
	err := Feed(t.Context(), "echo begun >&2; while :; do echo more; done", nil, &said, func(_ context.Context, out io.Reader) error {
		_, err := io.ReadFull(out, make([]byte, 100_000))
		require.NoError(t, err)
		return enough
	})
	require.Equal(t, enough, err)
	require.Equal(t, "begun\n", said.String())
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, Feed(ctx, "echo x; sleep 100", nil, nil, func(_ context.Context, out io.Reader) error {
		_, _ = out.Read(make([]byte, 1))
		cancel()
		_, err := io.ReadAll(out)
		return err
	}))
	require.ErrorContains(t, Run(t.Context(), "cat >&2; exit 3", time.Minute, nil, strings.NewReader("a\nb\n")), "exit status 3: b")
}

// TestPipefail: bash runs what has a pipe. Without bash, Warning says that failures may be missed.
func TestPipefail(t *testing.T) {
	for command, pipe := range map[string]bool{"a": false, "a || b": false, "a; b": false, "a | b": true, "a || b|c": true} {
		t.Setenv("PATH", t.TempDir())
		name, args, _ := pipefail(command)
		require.Equal(t, command, args[len(args)-1])
		require.NotContains(t, name, "bash")
		require.Equal(t, pipe, Warning(command) != "", command)
	}
}
