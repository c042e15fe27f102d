package server

import (
	"testing"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
)

// TestFTPHosts: the passive ports have one host, so the addresses of the door have it, too.
func TestFTPHosts(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		addr, implicit string
		ok             bool
	}{
		{":21", "", true}, {"", "192.0.2.1:990", true}, {":21", ":990", true}, {"[::1]:21", "[::1]:990", true},
		{"192.0.2.1:21", ":990", false}, {"192.0.2.1:21", "192.0.2.2:990", false},
	} {
		err := (&FTPDoor{Addr: x.addr, ImplicitTLS: x.implicit}).checkHosts()
		require.Equal(t, x.ok, err == nil, "%+v: %v", x, err)
		if err != nil {
			require.Equal(t, session.KindUsage, session.KindOf(err))
		}
	}
}
