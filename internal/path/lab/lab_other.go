//go:build !linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"time"
)

var errSystem = fmt.Errorf("%w: it needs Linux, this is %s", ErrUnsupported, runtime.GOOS)

// Lab is a running WAN in a box. This system has none.
type Lab struct {
	Left, Right *Host
	Middle      []*Host
	Leaves      []*Host
}

// Start fails with an error that matches ErrUnsupported.
func Start(Link) (*Lab, error) { return nil, errSystem }

// StartChain fails with an error that matches ErrUnsupported.
func StartChain([]Leg) (*Lab, error) { return nil, errSystem }

// StartStar fails with an error that matches ErrUnsupported.
func StartStar([]Leg, Leg) (*Lab, error) { return nil, errSystem }

// Elevate fails with an error that matches ErrUnsupported.
func Elevate() (code int, ran bool, err error) { return 0, false, errSystem }

// Daemonize fails with an error that matches ErrUnsupported.
func Daemonize(...string) (code int, err error) { return 0, errSystem }

// Ready does nothing.
func Ready() error { return nil }

// Set fails with an error that matches ErrUnsupported.
func (*Lab) Set(Change) error { return errSystem }

// Link returns no links.
func (*Lab) Link() (leftToRight, rightToLeft Link) { return }

// Counters returns zeros.
func (*Lab) Counters() (leftToRight, rightToLeft Counters) { return }

// LegCounters returns nothing.
func (*Lab) LegCounters() [][2]Counters { return nil }

// StartCross fails with an error that matches ErrUnsupported.
func (*Lab) StartCross(Cross) (*Traffic, error) { return nil, errSystem }

// StartPing fails with an error that matches ErrUnsupported.
func (*Lab) StartPing() (*Ping, error) { return nil, errSystem }

// Close does nothing.
func (*Lab) Close() error { return nil }

// Traffic is running cross traffic.
type Traffic struct{}

// Stop returns an empty report.
func (*Traffic) Stop() *CrossReport { return &CrossReport{} }

// Ping measures the delay that traffic adds to the link.
type Ping struct{}

// Stop returns an empty report.
func (*Ping) Stop() *PingReport { return &PingReport{} }

// Host is one end of a link.
type Host struct{}

// Addr returns no address.
func (*Host) Addr() netip.Addr { return netip.Addr{} }

// Addr6 returns no address.
func (*Host) Addr6() netip.Addr { return netip.Addr{} }

// Do fails with an error that matches ErrUnsupported.
func (*Host) Do(func() error) error { return errSystem }

// Listening fails with an error that matches ErrUnsupported.
func (*Host) Listening() (bool, error) { return false, errSystem }

// Cmd is a command inside a host.
type Cmd struct {
	*exec.Cmd
}

// Command returns a command that can't be started.
func (*Host) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{Cmd: exec.CommandContext(ctx, name, args...)}
}

// Start fails with an error that matches ErrUnsupported.
func (*Cmd) Start() error { return errSystem }

// Run fails with an error that matches ErrUnsupported.
func (*Cmd) Run() error { return errSystem }

// Output fails with an error that matches ErrUnsupported.
func (*Cmd) Output() ([]byte, error) { return nil, errSystem }

// CombinedOutput fails with an error that matches ErrUnsupported.
func (*Cmd) CombinedOutput() ([]byte, error) { return nil, errSystem }

// Detach does nothing.
func (*Cmd) Detach() {}

// Stop does nothing.
func (*Cmd) Stop(<-chan struct{}, time.Duration) {}

// Attend fails with an error that matches ErrUnsupported.
func (*Cmd) Attend() (int, error) { return 0, errSystem }

// Control is the server side of a named lab.
type Control struct{}

// ListenControl fails with an error that matches ErrUnsupported.
func ListenControl(string) (*Control, error) { return nil, errSystem }

// Close does nothing.
func (*Control) Close() error { return nil }

// Serve fails with an error that matches ErrUnsupported.
func (*Control) Serve(context.Context, *Lab) error { return errSystem }

// Client speaks to a named lab.
type Client struct{}

// Dial fails with an error that matches ErrUnsupported.
func Dial(string) (*Client, error) { return nil, errSystem }

// Set fails with an error that matches ErrUnsupported.
func (*Client) Set(Change) error { return errSystem }

// Down fails with an error that matches ErrUnsupported.
func (*Client) Down() (leftToRight, rightToLeft Counters, err error) { err = errSystem; return }

// Exec fails with an error that matches ErrUnsupported.
func (*Client) Exec(string, ...string) (int, error) { return 0, errSystem }
