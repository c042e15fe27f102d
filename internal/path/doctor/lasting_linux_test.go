package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
)

func TestKeeper(t *testing.T) {
	const (
		ifindex = "sys/class/net/eth0/ifindex"
		link    = "run/systemd/netif/links/7"
		device  = "run/NetworkManager/devices/7"
		library = "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-255.so"
	)
	const configured = "# This is private data. Do not parse.\nADMIN_STATE=configured\nOPER_STATE=routable\n" +
		"NETWORK_FILE=/run/systemd/network/10-netplan-eth0.network\nDNS=192.0.2.53\n"
	const managed = "[device]\nmanaged=true\nconnection-uuid=1e5f7a3c-0000-4000-8000-000000000000\n"
	file := "/run/systemd/network/10-netplan-eth0.network"
	for name, c := range map[string]struct {
		files map[string]string
		want  keeper
	}{
		"nobody":              {map[string]string{library: ""}, keeper{}},
		"networkd":            {map[string]string{link: configured, library: ""}, keeper{networkd, file, 255}},
		"networkd, no system": {map[string]string{link: configured}, keeper{networkd, file, 0}},
		"networkd, several": {map[string]string{link: configured, library: "", "usr/lib64/systemd/libsystemd-shared-256.4-1.fc41.so": "",
			"usr/lib/systemd/libsystemd-shared-254.so": "", "usr/lib/systemd/libsystemd-shared-x.so": ""}, keeper{networkd, file, 254}},
		"another interface":      {map[string]string{"run/systemd/netif/links/8": configured}, keeper{}},
		"unmanaged":              {map[string]string{link: "ADMIN_STATE=unmanaged\nOPER_STATE=routable\n"}, keeper{}},
		"networkd, quoted":       {map[string]string{link: "ADMIN_STATE=configured\nNETWORK_FILE=\"/etc/a b.network\"\n"}, keeper{}},
		"NetworkManager":         {map[string]string{device: managed, link: "ADMIN_STATE=unmanaged\n"}, keeper{program: networkManager}},
		"NetworkManager, not it": {map[string]string{device: "[device]\nmanaged=false\n"}, keeper{}},
		"both":                   {map[string]string{device: managed, link: configured}, keeper{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.files[ifindex] = "7\n"
			for name, text := range c.files {
				path := filepath.Join(root, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			require.Equal(t, c.want, linuxSystem{root}.keeper("eth0"))
			require.Equal(t, keeper{}, linuxSystem{root}.keeper("eth1"))

			// Another network namespace than the host's has an interface 7 of its own.
			for name, ns := range map[string]string{"thread-self": "net:[2]", "1": "net:[1]"} {
				dir := filepath.Join(root, "proc", name, "ns")
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.Symlink(ns, filepath.Join(dir, "net")))
			}
			require.Equal(t, keeper{}, linuxSystem{root}.keeper("eth0"))
		})
	}
}

// TestDispatcher runs NetworkManager's script where routes have come back without metrics, and one
// with another gateway.
func TestDispatcher(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	l := startLab(t, lab.Link{Rate: 1e9})
	require.NoError(t, l.Right.Do(func() error {
		if err := layRoutes(l.Left.Addr(), l.Left.Addr6()); err != nil {
			return err
		}
		sys := linuxSystem{"/"}
		before, err := sys.routes()
		if err != nil {
			return err
		}
		var changed []lasting
		for _, r := range before {
			r.protocol = "static"
			changed = append(changed, lasting{&r, []Metric{{Name: "initcwnd", Value: "32"}, {Name: "initrwnd", Value: "44"}}, keeper{program: networkManager}, true})
		}
		files, notes := routeFiles("", changed)
		if len(files) != 1 || len(notes) > 0 || len(before) < 4 {
			return fmt.Errorf("%d files, notes %q, routes %v", len(files), notes, before)
		}
		script := filepath.Join(t.TempDir(), "90-fxfer")
		if err := os.WriteFile(script, []byte(files[0].text), 0o700); err != nil {
			return err
		}
		run := func(args ...string) error {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil || len(out) > 0 {
				return errors.Join(err, fmt.Errorf("%q: %s", args, out))
			}
			return nil
		}
		// The first route gets another gateway, on the same network.
		other := l.Right.Addr().Next().Next().String()
		if err := run("ip", "route", "replace", "default", "via", other, "dev", "wan0", "onlink"); err != nil {
			return err
		}
		fresh, err := sys.routes()
		if err != nil {
			return err
		}
		for _, args := range [][]string{{"wan0", "down"}, {"eth0", "up"}} {
			if err := run("sh", script, args[0], args[1]); err != nil {
				return err
			}
			if now, err := sys.routes(); err != nil || !slices.EqualFunc(now, fresh, func(a, b Route) bool { return a.String() == b.String() }) {
				return errors.Join(err, fmt.Errorf("%q changed routes: %v", args, now))
			}
		}
		for range 2 { // the second time, they have the metrics already
			if err := run("sh", script, "wan0", "up"); err != nil {
				return err
			}
			now, err := sys.routes()
			if err != nil || len(now) != len(fresh) {
				return errors.Join(err, fmt.Errorf("routes %v", now))
			}
			for i, r := range fresh {
				want, err := withMetrics(r.raw, changed[0].set)
				if err != nil {
					return err
				}
				w, err := describeRoute(want)
				if err != nil {
					return err
				}
				text := strings.ReplaceAll(w.String(), "rto_min 50ms", "rto_min lock 50ms") // ip always locks it
				if text != now[i].String() {
					return fmt.Errorf("want %v, got %v", text, now[i].String())
				}
			}
		}
		return nil
	}))
}
