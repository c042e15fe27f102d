// Package sessiontest helps tests of clients and servers, which may not import each other.
package sessiontest

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is a server that listens.
type Server interface {
	Serve(ctx context.Context) error
}

// Run serves until stop is called, which fails the test where Serve returned an error.
func Run(t testing.TB, s Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return func() {
		t.Helper()
		cancel()
		require.NoError(t, <-done)
	}
}

// RandomFile writes n random bytes to the file name and returns them. It logs their seed.
func RandomFile(t testing.TB, name string, n int) []byte {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data)
	require.NoError(t, os.WriteFile(name, data, 0o644))
	return data
}
