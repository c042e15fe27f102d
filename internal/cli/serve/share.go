package serve

import (
	"fmt"
	"net"
	"strings"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// nameParser returns what reads the name or address of this machine for invitations. port says where
// the port in the URL comes from.
func nameParser(port string) func(string) (string, error) {
	return func(s string) (string, error) {
		if _, _, err := net.SplitHostPort(s); err == nil {
			return "", fmt.Errorf("%q has a port: leave it out, %s", s, port)
		}
		host, _, err := identity.SplitHost(s)
		return host, err
	}
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
