package hosts

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The names of the settings about available congestion controls.
const (
	AllowedCC = "net/ipv4/tcp_allowed_congestion_control"
	DefaultCC = "net/ipv4/tcp_congestion_control"
)

// Sysctl returns a setting of this machine. When called in a host, it returns the setting of the
// host.
func Sysctl(name string) (string, error) {
	text, err := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(text)), err
}

// SetSysctl changes a setting.
func SetSysctl(name, value string) error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }

// Setting is a kernel setting. Its name is a path below /proc/sys.
type Setting struct{ Name, Value string }

// Machine changes settings that all network namespaces share, and remembers their old values. The
// zero value is ready for use.
type Machine struct{ old []Setting }

// Set changes one setting.
func (m *Machine) Set(s Setting) error {
	old, err := Sysctl(s.Name)
	if err != nil {
		return err
	}
	m.old = append(m.old, Setting{s.Name, old})
	if err := SetSysctl(s.Name, s.Value); err != nil {
		return fmt.Errorf("set %s: %w", s.Name, err)
	}
	return nil
}

// Undo restores what Set changed.
func (m *Machine) Undo() error {
	var err error
	for _, s := range slices.Backward(m.old) {
		err = errors.Join(err, SetSysctl(s.Name, s.Value))
	}
	m.old = nil
	return err
}
