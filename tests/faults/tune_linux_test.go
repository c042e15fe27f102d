package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var tuneLabs = flag.Int("tune-labs", 0, "labs of each kind for TestTune, and five times as many without a difference; 0 skips it")

// tuneLabsAtOnce is how many experiments run at the same time. They wait for their lines most of
// the time.
const tuneLabsAtOnce = 3

// tuned is what an experiment says of a setting, the best first.
type tuned struct {
	Name  string
	Place string
}

// tuneCases are paths of which it is known which setting is best.
var tuneCases = []struct {
	name  string
	link  lab.Link
	rmem  string // of the receiver
	flags []string
	right func(best string, ranked []tuned) bool
}{
	{
		"a small window", lab.Link{Rate: 100e6, RTT: 150 * time.Millisecond}, "4096 131072 524288",
		[]string{"--streams", "1,32", "--size", "3MB", "--rounds", "5"},
		func(_ string, ranked []tuned) bool { return beats(ranked, "32 streams", "1 stream") },
	},
	{
		"loss", lab.Link{Rate: 50e6, RTT: 60 * time.Millisecond, Loss: 0.005}, "",
		[]string{"--streams", "2", "--congestion", "bbr,cubic", "--size", "2MB", "--rounds", "5"},
		func(_ string, ranked []tuned) bool { return beats(ranked, "2 streams, bbr", "2 streams, cubic") },
	},
	{
		"a full line", lab.Link{Rate: 20e6, RTT: 20 * time.Millisecond}, "",
		[]string{"--streams", "4,64", "--size", "2MB", "--rounds", "3", "--budget", "12s"},
		func(_ string, ranked []tuned) bool { return placed(ranked, "4 streams") < placed(ranked, "64 streams") },
	},
	{
		"no difference", lab.Link{Rate: 50e6, RTT: 10 * time.Millisecond}, "",
		[]string{"--transport", "auto,tcp", "--priority", "auto,normal", "--size", "2MB", "--rounds", "3", "--budget", "12s"},
		func(best string, _ []tuned) bool { return best == "defaults" },
	},
}

// placed returns the index of a setting.
func placed(ranked []tuned, name string) int {
	return slices.IndexFunc(ranked, func(r tuned) bool { return r.Name == name })
}

// beats reports whether a setting is better than another one, and not by the tie rule alone: one of
// them differs from the defaults.
func beats(ranked []tuned, better, worse string) bool {
	a, b := placed(ranked, better), placed(ranked, worse)
	return a < b && (ranked[a].Place == "faster" || ranked[b].Place == "slower")
}

// TestTune: an experiment finds what is known of a path, in 19 of 20 labs, and the profile that it
// saves is used.
func TestTune(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	if *tuneLabs == 0 {
		t.Skip("-tune-labs is 0: an experiment takes half a minute")
	}
	for _, c := range tuneCases {
		t.Run(c.name, func(t *testing.T) {
			if allowed, _ := hosts.Sysctl(hosts.AllowedCC); c.name == "loss" && !strings.Contains(allowed, "bbr") {
				t.Skip("the kernel does not allow bbr to everybody")
			}
			n := *tuneLabs
			if c.name == "no difference" {
				n *= 5
			}
			var wrong atomic.Int32
			labs(t, n, tuneLabsAtOnce, func(t testing.TB) func() {
				best, ranked := tuneIn(t, c.link, c.rmem, c.flags)
				t.Log(best, ranked)
				return func() {
					if !c.right(best, ranked) {
						wrong.Add(1)
					}
				}
			})
			t.Logf("right in %d of %d labs", n-int(wrong.Load()), n)
			require.LessOrEqual(t, int(wrong.Load()), (n+15)/20) // one of five may be wrong by chance
		})
	}
}

// tuneIn makes an experiment in a lab. A transfer then uses the profile that the experiment saved.
func tuneIn(t testing.TB, link lab.Link, rmem string, args []string) (best string, ranked []tuned) {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-tune-", "home", "tmp", "dst")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
	box, err := lab.Start(link)
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	if rmem != "" {
		require.NoError(t, box.Right.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_rmem", rmem) }))
	}
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"))
	command, err := x.Cold()
	require.NoError(t, err)
	run := func(report any, args ...string) {
		t.Helper()
		command.Argv = append([]string{command.Argv[0]}, args...)
		cmd := folder.Prepare(t.Context(), command)
		var said hosts.Output
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, "%s\n%s", out, said.String())
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		require.NoError(t, json.Unmarshal(lines[len(lines)-1], report), "%s", out)
	}
	var found struct {
		Type    string
		Best    json.RawMessage
		Servers []struct{ Results []tuned }
	}
	run(&found, append([]string{"tune", "--json", "--save", "found", "--budget", "2m", x.URL("")}, args...)...)
	require.Equal(t, "tune", found.Type)
	var setting struct{ Streams int }
	require.NoError(t, json.Unmarshal(found.Best, &setting))
	ranked = found.Servers[0].Results
	best = ranked[0].Name
	if string(found.Best) == "{}" {
		best = "defaults"
	}
	require.NoError(t, folder.Fill(t.Context(), "file", 4e6, 1))
	var sent struct {
		Type    string
		Streams int
	}
	run(&sent, "send", "--json", "--profile", "found", "file", x.URL("dst/"))
	require.Equal(t, "summary", sent.Type)
	if setting.Streams > 0 {
		require.Equal(t, setting.Streams, sent.Streams)
	}
	return best, ranked
}
