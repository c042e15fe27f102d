package serve

import (
	"fmt"
	"strings"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// parseName reads the name or address of this machine for invitations.
func parseName(s string) (string, error) {
	host, port, err := identity.SplitHost(s)
	if err == nil && port != identity.DefaultPort {
		err = fmt.Errorf("%q has a port: the URL already gets the port that the server listens on", s)
	}
	return host, err
}

// parseShareFlag reads NAME=DIR[:right] or DIR[:right]. DIR may contain colons and equals signs. A
// name contains no slash. For the second form the returned name is empty.
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
