package cli

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	testToken = "q83vEjRWeJCrze8SNFZ4kKvN"
	testPin   = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
)

func parseTransferFlags(args string) (*transferFlags, error) {
	var f transferFlags
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	f.add(flags, f.addList)
	if err := flags.Parse(strings.Fields(args)); err != nil {
		return nil, err
	}
	return &f, f.check(flags)
}

func TestTransferFlags(t *testing.T) {
	for args, want := range map[string]transferFlags{
		"": {},
		"--streams auto --max-streams 16 --sock-buf auto --congestion auto --rate-limit none": {opt: fxfer.Options{MaxStreams: 16}},
		"--streams 1 --sock-buf 17520":                  {opt: fxfer.Options{Streams: 1, SockBuf: 17520}},
		"--sock-buf 64KiB":                              {opt: fxfer.Options{SockBuf: 65536}},
		"--rate-limit 200mbit":                          {opt: fxfer.Options{RateLimit: 200e6}},
		"--rate-limit 20MB/s --congestion bbr":          {opt: fxfer.Options{RateLimit: 160e6, Congestion: "bbr"}},
		"--retry-for 1h30m --verify readback":           {opt: fxfer.Options{RetryFor: 90 * time.Minute}, call: fxfer.Transfer{Target: fxfer.Target{Readback: true}}},
		"--verify digest --pin " + testPin:              {opt: fxfer.Options{Pin: "ed25519:" + testPin}},
		"--pin ed25519:" + testPin + " --quiet":         {opt: fxfer.Options{Pin: "ed25519:" + testPin}, quiet: true},
		"--streams auto --max-streams 1 --json=true":    {opt: fxfer.Options{MaxStreams: 1}, json: true},
		"--json --quiet=false":                          {json: true},
		"--sock-buf 512MiB --sock-buf 1MB --streams 64": {opt: fxfer.Options{SockBuf: 1e6, Streams: 64}},
		"--exclude *.o --include /a.o --exclude cache/ --max-size 2GiB -x": {call: fxfer.Transfer{
			Selection: fxfer.Selection{Rules: []string{"*.o", "!/a.o", "cache/"}, MaxSize: 2 << 30, OneFileSystem: true}}},
		"--newer-than 2026-11-21T14:30:00Z": {call: fxfer.Transfer{Selection: fxfer.Selection{NewerThan: time.Date(2026, 11, 21, 14, 30, 0, 0, time.UTC)}}},
		"--files-from - --from0 --report r": {list: "-", nul: true, report: "r"},
		"--checksum --update --existing --ignore-existing --numeric-ids --strict": {call: fxfer.Transfer{
			Target: fxfer.Target{Checksum: true, Update: true, Existing: true, IgnoreExisting: true, NumericIDs: true, Strict: true}}},
		"--delete --max-delete 5 --backup-dir old -n --sync none": {call: fxfer.Transfer{
			Target: fxfer.Target{Delete: true, MaxDelete: 5, BackupDir: "old", DryRun: true, Sync: fxfer.SyncNone}}},
		"--compress auto --manifest m": {opt: fxfer.Options{Compress: "auto"}, call: fxfer.Transfer{Manifest: "m"}},
	} {
		f, err := parseTransferFlags(args)
		require.NoError(t, err, args)
		require.Equal(t, &want, f, args)
	}
}

func TestTransferFlagsRefuse(t *testing.T) {
	for args, want := range map[string]string{
		"--streams 0":                   `"0" is not a number from 1 up`,
		"--exclude /":                   "empty pattern",
		"--include [":                   "rule 1",
		"--exclude-from nowhere":        "no such file",
		"--max-size 0":                  "all files but empty ones",
		"--max-size 2G":                 "is not a size",
		"--newer-than yesterday":        "is not a time such as 2026-11-21",
		"--newer-than -3h":              "is not a time such as",
		"--sync always":                 "none of batch, file and none",
		"--compress gzip":               "none of auto, zstd and none",
		"--max-delete 3":                "bounds what --delete removes",
		"--delete --max-delete 0":       "is not a number",
		"--dry-run --manifest m":        "--dry-run makes none",
		"--from0":                       "says how the list of --files-from",
		"--report=":                     "the name is empty",
		"--streams many":                `"many" is not a number`,
		"--max-streams auto":            `"auto" is not a number`,
		"--streams 4 --max-streams 8":   "--streams fixes the number",
		"--json --quiet":                "exclude each other",
		"--sock-buf 64KB/s":             "is not a size",
		"--sock-buf 0":                  "is not from 1 byte",
		"--sock-buf 1GiB":               "is not from 1 byte",
		"--congestion BBR":              "is not the name of a congestion control",
		"--congestion bbr;reboot":       "is not the name of a congestion control",
		"--rate-limit 200Mbit":          "is not a rate",
		"--rate-limit 200":              "is not a rate",
		"--retry-for 10":                "is not a time",
		"--retry-for -1m":               "is not a time",
		"--verify twice":                "neither digest nor readback",
		"--pin ed25519:" + testPin[1:]:  "is not a pin",
		"--pin " + testPin + "=":        "is not a pin",
		"--streams auto --streams -1":   "is not a number",
		"--max-streams 99999999999":     "is not a number",
		"--rate-limit none --sock-buf=": "is not a size",
	} {
		_, err := parseTransferFlags(args)
		require.ErrorContains(t, err, want, args)
	}
}

func TestSettingsDoNotContradictFlags(t *testing.T) {
	var f transferFlags
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	f.add(flags, f.addList)
	for _, name := range []string{"quiet", "max-streams"} { // as applySettings does
		require.NoError(t, flags.Lookup(name).Value.Set(map[string]string{"quiet": "true", "max-streams": "8"}[name]))
	}
	require.NoError(t, flags.Parse([]string{"--json", "--streams", "12"}))
	require.NoError(t, f.check(flags))
	require.Equal(t, transferFlags{opt: fxfer.Options{Streams: 12}, json: true}, f)
}

func TestSendArgs(t *testing.T) {
	for args, want := range map[string]string{ // "": accepted
		"a fxfer://h/s":            "",
		"a b/ fxfer://h/s/p/":      "",
		"- fxfer://h/s/dump.sql":   "",
		"./- a fxfer://h/s":        "",
		"a":                        "needs a source and a URL",
		"a b":                      `"b", is not a fxfer:// URL`,
		"fxfer://h/s a":            `"a", is not a fxfer:// URL`,
		"fxfer://h/s fxfer://g/s":  "from server to server",
		"a fxfer://h":              "names no share",
		"a fxfer://h/":             "names no share",
		"a fxfer://h/s/../t":       `".." in the path`,
		"- a fxfer://h/s/x":        "together with other sources",
		"a - fxfer://h/s/x":        "together with other sources",
		"- fxfer://h/s":            "needs a file name",
		"- fxfer://h/s/p/":         "needs a file name",
		"a fxfer://u:p@h/s":        "no invitation",
		"a fxfer://h:99999/s":      "is not a port",
		"a b c fxfer:/h/s":         "is not a fxfer:// URL",
		"a fxfer://h/s fxfer://h/": "names no share",
	} {
		_, _, err := sendArgs(strings.Fields(args))
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), args)
	}
}

func TestGetArgs(t *testing.T) {
	for args, want := range map[string]string{ // "": accepted
		"fxfer://h/s/a .":                   "",
		"fxfer://h/s/a fxfer://h/s/b/ dir/": "",
		"fxfer://h/s/a":                     "needs a URL and a folder",
		"fxfer://h/s/a fxfer://h/s/b":       "not a folder of this host",
		"a fxfer://h/s":                     `"a", is not a fxfer:// URL`,
		"a b":                               `"a" is not a fxfer:// URL`,
		"fxfer://h .":                       "names no share",
		"fxfer://h/s/a -":                   "standard output",
	} {
		_, _, err := getArgs(strings.Fields(args))
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), args)
	}
}

func TestCheckPin(t *testing.T) {
	u, err := fxfer.ParseURL("fxfer://" + testToken + ":" + testPin + "@h/s")
	require.NoError(t, err)
	require.NoError(t, checkPin("", u))
	require.NoError(t, checkPin("ed25519:"+testPin, u))
	require.ErrorContains(t, checkPin("ed25519:other", u), "another key")
	require.NoError(t, checkPin("ed25519:other", fxfer.URL{Host: "h"}))
}

func TestNearestFlag(t *testing.T) {
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	f := new(transferFlags)
	f.add(flags, f.addList)
	for name, want := range map[string]string{
		"strems": "streams", "stream": "streams", "sockbuf": "sock-buf", "rate": "rate-limit", "max-str": "max-streams", "jsno": "json", "bwlimit": "", "x": "",
	} {
		require.Equal(t, want, nearestFlag(flags, name), name)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"same", "same", 0}} {
		require.Equal(t, c.want, distance(c.a, c.b), c)
	}
}

func TestParseNewer(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-03-01":                time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"2026-03-01 08:15":          time.Date(2026, 3, 1, 8, 15, 0, 0, zone),
		"2026-03-01 08:15:30":       time.Date(2026, 3, 1, 8, 15, 30, 0, zone),
		"2026-03-01T08:15:30+02:00": time.Date(2026, 3, 1, 7, 15, 30, 0, zone),
		"36h":                       now.Add(-36 * time.Hour),
		"7d ago":                    time.Date(2026, 3, 24, 12, 0, 0, 0, zone),
		"2w":                        time.Date(2026, 3, 17, 12, 0, 0, 0, zone),
		"1h30m ago":                 now.Add(-90 * time.Minute),
	} {
		got, err := parseNewer(text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), "%s: %s", text, got)
	}
	for _, text := range []string{"", "ago", "7", "d", "0s", "2026-13-01", "tomorrow", "1d2h", "7 d"} {
		_, err := parseNewer(text, now)
		require.Error(t, err, text)
	}
}

// TestRulesOfSettings has those of the command line decide.
func TestRulesOfSettings(t *testing.T) {
	t.Setenv("FXFER_HOME", t.TempDir())
	t.Setenv("FXFER_EXCLUDE", "*.o\n*.tmp")
	c := newSendCommand()
	var f transferFlags
	c.ResetFlags()
	f.add(c.Flags(), f.addList)
	addSettings(c)
	require.NoError(t, c.ParseFlags([]string{"--include", "a.o"}))
	require.NoError(t, f.settle(c))
	require.Equal(t, []string{"*.o", "*.tmp", "!a.o"}, f.call.Selection.Rules)
}

func TestOpenList(t *testing.T) {
	f := transferFlags{list: "-", nul: true}
	done, err := f.openList(strings.NewReader("a\x00b\nc\x00\x00./d/"))
	require.NoError(t, err)
	for range 2 {
		var got []string
		for path, err := range f.call.Selection.Files {
			require.NoError(t, err)
			got = append(got, path)
		}
		require.Equal(t, []string{"a", "b\nc", "d"}, got)
	}
	done()
	for _, err := range f.call.Selection.Files {
		require.ErrorIs(t, err, fs.ErrNotExist, "it is gone")
	}
}

func TestGroupedUsage(t *testing.T) {
	for _, c := range []*cobra.Command{newSendCommand(), newGetCommand()} {
		usage := c.UsageString()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			require.Equal(t, 1, strings.Count(usage, "      --"+f.Name+" ")+strings.Count(usage, ", --"+f.Name+" "), f.Name)
			require.True(t, f.Annotations[groupKey] != nil || f.Name == "config", f.Name)
		})
	}
}
