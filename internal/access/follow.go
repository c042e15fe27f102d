package access

import (
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// maxFollowed bounds the symlinks on the way to one path, as Linux does.
const maxFollowed = 40

// Follow returns the path of the entry that p leads to, with each symlink on the way replaced by
// its target. The last element is replaced, too, if last says so. Only links that the client may
// have this effect on are followed: with the right to append, those in its own series. None is
// followed that leads outside of the share. What is not followed stays in the path.
//
// This decides nothing: whoever uses the path asks the gate about it. The path has no links, and a
// tree follows none, so a link that somebody makes meanwhile leads nowhere.
func (s *Scope) Follow(e Effect, p string, last bool) (string, error) {
	if s.tree == nil || disk.CheckPath(p) != nil {
		return p, nil
	}
	at, rest, followed := ".", p, 0
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return p, nil
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		if rest == "" && !last {
			return next, nil
		}
		if s.check(e, next) != nil { // not looked at; what lies below may be the client's own
			at = next
			continue
		}
		have, err := s.tree.Stat(next)
		if err != nil || have.Kind != disk.Symlink {
			at = next
			continue
		}
		if followed++; followed > maxFollowed {
			return p, wire.Errorf(wire.CodePath, "%q leads through too many links", p)
		}
		if path.IsAbs(have.Link) {
			return p, nil
		}
		rest = have.Link + "/" + rest
	}
	return at, nil
}
