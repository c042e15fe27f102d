package serve

import (
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// parseName reads the name or address of this machine.
func parseName(s string) (string, error) {
	host, port, err := identity.SplitHost(s)
	if err == nil && port != identity.DefaultPort {
		err = fmt.Errorf("%q has a port: the URL has the one that is listened on", s)
	}
	return host, err
}

// parseShareFlag reads NAME=DIR[:right] or DIR[:right]. DIR may hold colons and equals signs; a name holds no slash. The name
// of the second form is left empty.
func parseShareFlag(s string) fxfer.Share {
	share := fxfer.Share{Rights: identity.Read | identity.Write}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if rights, err := identity.ParseRights(s[i+1:]); err == nil {
			s, share.Rights = s[:i], rights
		}
	}
	name, dir, found := strings.Cut(s, "=")
	if !found || strings.ContainsAny(name, `/\`) {
		name, dir = "", s
	}
	share.Name, share.Dir = name, dir
	return share
}
