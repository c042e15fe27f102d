package server

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// end is an end of a transfer that does nothing.
type end struct {
	session.Engine
	sends bool
}

func (e end) Sends() bool { return e.sends }

// TestFamilies: sessions share by weight if they have the host and the direction in common. Those of low
// priority are a family of their own. What comes from a relay, or from this host, may come over any path.
func TestFamilies(t *testing.T) {
	s := &Server{sessions: make(map[[16]byte]liveSession)}
	s.live.Store(&liveSettings{})
	add := func(from string, sends bool, wish session.Priority, relayed bool) *transferSession {
		x := &transferSession{request: &request{
			hello: &wire.Hello{Relayed: relayed}, reservation: &reservation{server: s, from: netip.MustParseAddr(from)},
		}, engine: end{sends: sends}}
		x.wanted.Set(wish)
		x.hello.Session[0] = byte(len(s.sessions))
		s.sessions[x.hello.Session] = x
		return x
	}
	const host, other = "192.0.2.1", "192.0.2.2"
	a, b, c := add(host, false, session.PriorityNormal, false), add(host, false, "", false), add(host, false, session.PriorityHigh, false)
	low, lower := add(host, false, session.PriorityLow, false), add(host, false, session.PriorityLow, false)
	get := add(host, true, "", false)
	far := add(other, false, "", false)
	add(host, false, "", true)
	add("127.0.0.1", false, "", false)
	add("::1", false, "", false)
	var found [][]*transferSession
	for _, all := range s.families() {
		found = append(found, all)
	}
	require.Len(t, found, 4)
	for _, want := range [][]*transferSession{{a, b, c}, {low, lower}, {get}, {far}} {
		require.True(t, slices.ContainsFunc(found, func(all []*transferSession) bool {
			return len(all) == len(want) && !slices.ContainsFunc(want, func(x *transferSession) bool { return !slices.Contains(all, x) })
		}))
	}
}
