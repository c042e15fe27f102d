package tcp

import (
	"testing"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// newAuth is for a host with a key of its own.
func newAuth(t testing.TB) auth.Config {
	t.Helper()
	return auth.Config{Identity: transporttest.NewKey(t)}
}
