package server

import (
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// priorityOf returns the most that a client's sessions may have, wire.NoPriority for no bound.
func (l *liveSettings) priorityOf(id identity.Principal) wire.Priority {
	if c := l.admission(id); c != nil {
		most, _ := session.WirePriority(c.Priority) // checked
		return most
	}
	return wire.NoPriority
}

// priorityBounds returns the bounds of the session's priority: what the administrator has set for
// it, or what the client may have. They may change at any time.
func (x *transferSession) priorityBounds() (least, most wire.Priority) {
	if p := wirePriority(&x.forced); p != wire.NoPriority {
		return p, p
	}
	return wire.NoPriority, x.server.live.Load().priorityOf(x.peer.id)
}

// priority is the session's priority now.
func (x *transferSession) priority() wire.Priority {
	least, most := x.priorityBounds()
	return session.PriorityWithin(wirePriority(&x.wanted), least, most)
}

// SetPriority sets the priority of a transfer that runs, whatever the client wants and may have. ""
// gives it back to them. It reports whether there is such a transfer.
func (s *Server) SetPriority(id string, p session.Priority) (found bool, err error) {
	if err := session.CheckPriority(p); err != nil {
		return false, err
	}
	x := s.running(id)
	if x == nil {
		return false, nil
	}
	x.forced.Set(p)
	x.log.Info("priority set by the administrator", "priority", string(p))
	return true, nil
}

// wirePriority is a priority as a number of the protocol.
func wirePriority(l *session.LivePriority) wire.Priority {
	n, _ := session.WirePriority(l.Get())
	return n
}
