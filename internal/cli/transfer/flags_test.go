package transfer

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	testToken = "q83vEjRWeJCrze8SNFZ4kKvN"
	testPin   = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
)

func parseTransferFlags(args string) (*Flags, error) {
	var f Flags
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	f.Add(flags, f.AddList)
	if err := flags.Parse(strings.Fields(args)); err != nil {
		return nil, err
	}
	return &f, f.Check(flags)
}

func TestTransferFlags(t *testing.T) {
	for args, want := range map[string]Flags{
		"": {},
		"--streams auto --max-streams 16 --sock-buf auto --congestion auto --rate-limit none": {Opt: fxfer.Options{MaxStreams: 16}},
		"--streams 1 --sock-buf 17520":                  {Opt: fxfer.Options{Streams: 1, SockBuf: 17520}},
		"--sock-buf 64KiB":                              {Opt: fxfer.Options{SockBuf: 65536}},
		"--rate-limit 200mbit":                          {Opt: fxfer.Options{RateLimit: 200e6}},
		"--rate-limit 20MB/s --congestion bbr":          {Opt: fxfer.Options{RateLimit: 160e6, Congestion: "bbr"}},
		"--retry-for 1h30m --verify readback":           {Opt: fxfer.Options{RetryFor: 90 * time.Minute}, Call: fxfer.Transfer{Target: fxfer.Target{Readback: true}}},
		"--verify digest --pin " + testPin:              {Opt: fxfer.Options{Pin: "ed25519:" + testPin}},
		"--pin ed25519:" + testPin + " --quiet":         {Opt: fxfer.Options{Pin: "ed25519:" + testPin}, Quiet: true},
		"--streams auto --max-streams 1 --json=true":    {Opt: fxfer.Options{MaxStreams: 1}, JSON: true},
		"--json --quiet=false":                          {JSON: true},
		"--sock-buf 512MiB --sock-buf 1MB --streams 64": {Opt: fxfer.Options{SockBuf: 1e6, Streams: 64}},
		"--exclude *.o --include /a.o --exclude cache/ --max-size 2GiB -x": {Call: fxfer.Transfer{
			Selection: fxfer.Selection{Rules: []string{"*.o", "!/a.o", "cache/"}, MaxSize: 2 << 30, OneFileSystem: true}}},
		"--newer-than 2026-11-21T14:30:00Z": {Call: fxfer.Transfer{Selection: fxfer.Selection{NewerThan: time.Date(2026, 11, 21, 14, 30, 0, 0, time.UTC)}}},
		"--files-from - --from0 --report r": {List: "-", nul: true, report: "r"},
		"--checksum --update --existing --ignore-existing --numeric-ids --strict": {Call: fxfer.Transfer{
			Target: fxfer.Target{Checksum: true, Update: true, Existing: true, IgnoreExisting: true, NumericIDs: true, Strict: true}}},
		"--delete --max-delete 5 --backup-dir old -n --sync none": {Call: fxfer.Transfer{
			Target: fxfer.Target{Delete: true, MaxDelete: 5, BackupDir: "old", DryRun: true, Sync: fxfer.SyncNone}}},
		"--priority low":  {Opt: fxfer.Options{Priority: fxfer.PriorityLow}},
		"--priority auto": {},
		"--priority high --deadline 2126-11-21T06:00:00Z": {Opt: fxfer.Options{Priority: fxfer.PriorityHigh},
			Call: fxfer.Transfer{Deadline: time.Date(2126, 11, 21, 6, 0, 0, 0, time.UTC)}},
		"-arP":                         {}, // what fxfer always does
		"-avzP --rate-limit 100Mbit/s": {Opt: fxfer.Options{Compress: "auto", RateLimit: 100e6}, verbose: true},
		"-z --compress zstd -q":        {Opt: fxfer.Options{Compress: "zstd"}, Quiet: true},
		"-cunx": {Call: fxfer.Transfer{Selection: fxfer.Selection{OneFileSystem: true},
			Target: fxfer.Target{Checksum: true, Update: true, DryRun: true}}},
		"--compress auto --manifest m": {Opt: fxfer.Options{Compress: "auto"}, Call: fxfer.Transfer{Manifest: "m"}},
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
		"--max-size 2G":                 "is not a size: write 2GB for powers of 1000 or 2GiB for powers of 1024",
		"--newer-than yesterday":        "is not a time such as 2026-11-21",
		"--newer-than -3h":              "is not a time such as",
		"--sync always":                 "none of batch, file and none",
		"--compress gzip":               "none of auto, zstd and none",
		"--max-delete 3":                "bounds what --delete removes",
		"--delete --max-delete 0":       "is not a number",
		"--dry-run --manifest m":        "--dry-run makes none",
		"--from0":                       "says how the list of --files-from",
		"--report=":                     "the name is empty",
		"--priority urgent":             "none of low, normal, high and auto",
		"--deadline soon":               "is not a time such as 06:00",
		"--deadline 2020-01-01T06:00Z":  "is not a time",
		"--streams many":                `"many" is not a number`,
		"--max-streams auto":            `"auto" is not a number`,
		"--streams 4 --max-streams 8":   "--streams fixes the number",
		"--json --quiet":                "exclude each other",
		"--sock-buf 64KB/s":             "is not a size",
		"--sock-buf 0":                  "is not from 1 byte",
		"--sock-buf 1GiB":               "is not from 1 byte",
		"--congestion BBR":              "is not the name of a congestion control",
		"--congestion bbr;reboot":       "is not the name of a congestion control",
		"--rate-limit 200Mb":            "write 200mbit for bits or 200MB/s for bytes",
		"-vq":                           "exclude each other",
		"--rate-limit 200":              "is not a rate",
		"--retry-for 10":                "is not a time",
		"--retry-for -1m":               "is not a time",
		"--verify twice":                "neither digest nor readback",
		"--pin ed25519:" + testPin[1:]:  "is not a key",
		"--pin " + testPin + "=":        "is not a key",
		"--streams auto --streams -1":   "is not a number",
		"--max-streams 99999999999":     "is not a number",
		"--rate-limit none --sock-buf=": "is not a size",
	} {
		_, err := parseTransferFlags(args)
		require.ErrorContains(t, err, want, args)
	}
}

func TestSettingsDoNotContradictFlags(t *testing.T) {
	var f Flags
	flags := pflag.NewFlagSet("send", pflag.ContinueOnError)
	f.Add(flags, f.AddList)
	for _, name := range []string{"quiet", "max-streams"} { // as option.ApplySettings does
		require.NoError(t, flags.Lookup(name).Value.Set(map[string]string{"quiet": "true", "max-streams": "8"}[name]))
	}
	require.NoError(t, flags.Parse([]string{"--json", "--streams", "12"}))
	require.NoError(t, f.Check(flags))
	require.Equal(t, Flags{Opt: fxfer.Options{Streams: 12}, JSON: true}, f)
}

func TestOpenList(t *testing.T) {
	f := Flags{List: "-", nul: true}
	done, err := f.OpenList(strings.NewReader("a\x00b\nc\x00\x00./d/"))
	require.NoError(t, err)
	for range 2 {
		var got []string
		for path, err := range f.Call.Selection.Files {
			require.NoError(t, err)
			got = append(got, path)
		}
		require.Equal(t, []string{"a", "b\nc", "d"}, got)
	}
	done()
	for _, err := range f.Call.Selection.Files {
		require.ErrorIs(t, err, fs.ErrNotExist, "it is gone")
	}
}
