package backup

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// natPlace is what the programs of TestVaultBehindNAT need to know. They run as this test in network
// namespaces of their own, and have the role that the environment variable natRole names.
const (
	natRole  = "FXFER_TEST_NAT_ROLE"
	natPlace = "FXFER_TEST_NAT_PLACE" // a folder with the home folders, and the files of hosts

	natHosts = 3
	natRelay = "198.51.100.3"
)

// TestVaultBehindNAT: a host of backups that listens nowhere gets the files of three hosts behind NAT,
// in some nights by its schedule, 30 with -long. They meet at a relay. The kernel of the host of backups counts the
// connections that it accepts: none.
func TestVaultBehindNAT(t *testing.T) {
	if role := os.Getenv(natRole); role != "" {
		playNAT(t, role)
		return
	}
	if os.Getuid() != 0 || testing.Short() {
		t.Skip("takes root, and long")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	place := t.TempDir()
	prepareNAT(t, place)
	ns := joinNAT(t)
	begin := func(name string) (*exec.Cmd, io.Closer) {
		c := exec.Command("ip", "netns", "exec", ns(name), os.Args[0], "-test.run=^TestVaultBehindNAT$", fmt.Sprintf("-long=%v", *long))
		c.Env = append(os.Environ(), natRole+"="+name, natPlace+"="+place)
		in, err := c.StdinPipe()
		require.NoError(t, err)
		c.Stderr = os.Stderr
		if name != "vault" {
			c.Stdout = os.Stderr
			require.NoError(t, c.Start())
			t.Cleanup(func() {
				_ = in.Close() // it ends
				require.NoError(t, c.Wait())
			})
		}
		return c, in
	}
	begin("relay")
	for i := range natHosts {
		begin(fmt.Sprintf("h%d", i))
	}
	vault, in := begin("vault")
	out, err := vault.Output()
	_ = in.Close()
	t.Logf("the host of backups:\n%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "accepted 0 connections")
}

// prepareNAT makes the home folders. Hosts let the key of the host of backups read.
func prepareNAT(t *testing.T, place string) {
	pins := map[string]identity.Pin{}
	stores := map[string]*identity.Store{}
	for _, name := range []string{"vault", "relay", "h0", "h1", "h2"} {
		store, key, err := session.OpenIdentity(filepath.Join(place, name))
		require.NoError(t, err)
		pins[name], stores[name] = identity.PinOfPrivate(key), store
		require.NoError(t, os.Mkdir(filepath.Join(place, name, "files"), 0o700))
	}
	relay := net.JoinHostPort(natRelay, "7433")
	require.NoError(t, stores["relay"].Admit(identity.Principal(pins["vault"]), identity.Grants{"*": identity.Read}, ""))
	require.NoError(t, stores["vault"].AddKnownServer(relay, pins["relay"]))
	for i := range natHosts {
		name := fmt.Sprintf("h%d", i)
		require.NoError(t, stores[name].AddKnownServer(relay, pins["relay"]))
		require.NoError(t, stores["vault"].AddKnownServer(name+":7433", pins[name]))
		require.NoError(t, stores[name].Admit(identity.Principal(pins["vault"]), identity.Grants{"files": identity.Read}, ""))
	}
}

// joinNAT makes a network of namespaces: the host of backups, the relay and three routers at one
// bridge, and behind each router a host with the same private address.
func joinNAT(t *testing.T) (ns func(string) string) {
	ns = func(name string) string { return fmt.Sprintf("fxnat%d-%s", os.Getpid(), name) }
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	in := func(name string, args ...string) {
		t.Helper()
		run(append([]string{"ip", "netns", "exec", ns(name)}, args...)...)
	}
	add := func(name string) {
		run("ip", "netns", "add", ns(name))
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns(name)).Run() })
		in(name, "ip", "link", "set", "lo", "up")
	}
	add("net")
	in("net", "ip", "link", "add", "name", "bridge0", "type", "bridge")
	in("net", "ip", "link", "set", "bridge0", "up")
	at := func(name, addr string) { // joins a namespace to the bridge
		add(name)
		in("net", "ip", "link", "add", name, "type", "veth", "peer", "name", "wan", "netns", ns(name))
		in("net", "ip", "link", "set", name, "master", "bridge0", "up")
		in(name, "ip", "addr", "add", addr+"/24", "dev", "wan")
		in(name, "ip", "link", "set", "wan", "up")
	}
	at("vault", "198.51.100.2")
	at("relay", natRelay)
	for i := range natHosts {
		router, host := fmt.Sprintf("r%d", i), fmt.Sprintf("h%d", i)
		at(router, fmt.Sprintf("198.51.100.%d", 11+i))
		add(host)
		in(router, "ip", "link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", ns(host))
		in(router, "ip", "addr", "add", "10.0.0.1/24", "dev", "lan")
		in(router, "ip", "link", "set", "lan", "up")
		in(host, "ip", "addr", "add", "10.0.0.2/24", "dev", "lan")
		in(host, "ip", "link", "set", "lan", "up")
		in(host, "ip", "route", "add", "default", "via", "10.0.0.1")
		in(router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
		in(router, "nft", "add", "table", "ip", "nat")
		in(router, "nft", "add", "chain", "ip", "nat", "out", "{ type nat hook postrouting priority 100 ; }")
		in(router, "nft", "add", "rule", "ip", "nat", "out", "oifname", "wan", "masquerade")
	}
	return ns
}

// playNAT is a program in a namespace. All but the host of backups end with standard input.
func playNAT(t *testing.T, role string) {
	place := os.Getenv(natPlace)
	home, relay := filepath.Join(place, role), fxfer.URL{Host: natRelay, Port: 7433}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var targets, hosts, sources []string
	for i := range natHosts {
		name := fmt.Sprintf("h%d", i)
		_, key, err := session.OpenIdentity(filepath.Join(place, name))
		require.NoError(t, err)
		targets = append(targets, name+"="+string(identity.PinOfPrivate(key)))
		hosts, sources = append(hosts, filepath.Join(place, name, "files")), append(sources, "fxfer://"+name+"/files/")
	}
	switch role {
	case "relay":
		r, err := fxfer.NewRelay(fxfer.RelayOptions{Home: home, Listen: ":7433", Targets: targets})
		require.NoError(t, err)
		require.NoError(t, r.Serve(ctx))
	case "vault":
		nights := 4
		if *long {
			nights = 30
		}
		client, err := fxfer.NewClient(fxfer.Options{Home: home, Via: []fxfer.URL{relay}})
		require.NoError(t, err)
		for _, source := range sources {
			u, err := fxfer.ParseURL(source)
			require.NoError(t, err)
			require.Eventually(t, func() bool { _, err := client.List(ctx, u); return err == nil }, 2*time.Minute, 50*time.Millisecond, source)
		}
		pullNights(t, home, hosts, sources, "retries: 20, backoff: 100ms, via: [\""+net.JoinHostPort(natRelay, "7433")+"\"]", nights)
		opened, accepted := tcpOpens(t)
		require.Greater(t, opened, natHosts*nights, "it connects itself")
		require.Empty(t, listening(t))
		fmt.Printf("in %d nights it made %d connections, and accepted %d connections\n", nights, opened, accepted)
	default:
		s, err := fxfer.NewServer(fxfer.ServerOptions{Home: home, Listen: "127.0.0.1:0", Call: []fxfer.URL{relay},
			Shares: []fxfer.Share{{Name: "files", Dir: filepath.Join(home, "files"), Rights: identity.Read}}})
		require.NoError(t, err)
		require.NoError(t, s.Serve(ctx))
	}
}

// tcpOpens returns how many TCP connections the kernel of this namespace has made and accepted.
func tcpOpens(t *testing.T) (made, accepted int) {
	text, err := os.ReadFile("/proc/self/net/snmp")
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Tcp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				switch name {
				case "ActiveOpens":
					_, err = fmt.Sscan(fields[i], &made)
				case "PassiveOpens":
					_, err = fmt.Sscan(fields[i], &accepted)
				}
				require.NoError(t, err)
			}
			return made, accepted
		}
	}
	t.Fatal("there are no figures of TCP")
	return 0, 0
}

// listening returns the lines about sockets of this namespace that take connections or datagrams.
func listening(t *testing.T) (all []string) {
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile("/proc/self/net/" + file)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 3 && (fields[3] == "0A" || strings.HasPrefix(file, "udp") && fields[0] != "sl") {
				all = append(all, file+" "+line)
			}
		}
	}
	return all
}
