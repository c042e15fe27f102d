package disk

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// WarnPrivilege is the kind of warning about what a target leaves out since it gives privilege.
const WarnPrivilege = "privilege"

// errPrivilege is the cause of such a warning.
var errPrivilege = errors.New("it gives privilege, which the target does not take from a transfer")

// errDevicePrivilege is the cause of the warning about a device.
var errDevicePrivilege = errors.New("it is left out, because a device gives privilege")

// privilegeBits let whoever runs a program act as its owner or group.
const privilegeBits = fs.ModeSetuid | fs.ModeSetgid

// Plain takes from m what could give privilege at a target: setuid and setgid, and attributes in
// security.* and trusted.*. It returns what it took. A device gives privilege by its kind, which stays.
func (m *Meta) Plain() (taken []string) {
	if m.Mode&privilegeBits != 0 {
		m.Mode &^= privilegeBits
		taken = append(taken, "setuid or setgid")
	}
	if slices.ContainsFunc(m.Xattrs, givesPrivilege) {
		var rest []Xattr
		for _, x := range m.Xattrs {
			if givesPrivilege(x) {
				taken = append(taken, x.Name)
			} else {
				rest = append(rest, x)
			}
		}
		m.Xattrs = rest
	}
	return taken
}

func givesPrivilege(x Xattr) bool { return isPrivileged(x.Name) }

// isPrivileged reports whether the system, or a program with privilege, obeys an attribute.
func isPrivileged(name string) bool {
	return strings.HasPrefix(name, "security.") || strings.HasPrefix(name, "trusted.")
}

// plain takes from m what the options do not set. Bits that the entry has stay.
func (o *TargetOptions) plain(have *Meta, m Meta) Meta {
	if o.Privileged || m.Mode&privilegeBits == 0 && len(m.Xattrs) == 0 {
		return m
	}
	plain := m
	plain.Plain()
	if have != nil {
		plain.Mode |= m.Mode & have.Mode & privilegeBits
	}
	if plain.Mode != m.Mode || len(plain.Xattrs) != len(m.Xattrs) {
		o.warn(m.Path, WarnPrivilege, errPrivilege)
	}
	return plain
}
