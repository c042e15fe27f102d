package transfer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func parseVerify(s string) (bool, error) {
	switch s {
	case "digest":
		return false, nil
	case "readback":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither digest nor readback", s)
}

func parseProfile(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	return profile.ParseName(s)
}

// applyProfile sets the options of the profile that are not on the command line.
func (f *Flags) applyProfile(flags *pflag.FlagSet) error {
	if f.profile == "" {
		return nil
	}
	home, err := identity.Home()
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	p, err := profile.Load(home, f.profile)
	if err == nil {
		p.Apply(&f.Opt, flags.Changed)
	}
	return err
}

// Flags are the flags that send and get have in common.
type Flags struct {
	Opt        fxfer.Options
	Call       fxfer.Transfer
	List       string     // list of the files to send
	Exec       string     // command whose output is sent
	nul        bool       // the paths in the list end with NUL
	listFaults chan error // the first fault of the list, if there is one
	report     string     // file for the outcome of each entry
	profile    string     // name of a profile, "" for none
	Target     string     // URL without secrets, for history
	Owners     bool       // the command promises to keep owners
	JSON       bool
	Quiet      bool
	verbose    bool
	explain    bool
}

// Add adds the flags. Those of list, unless it is nil, are added to the group about the selection.
func (f *Flags) Add(flags *pflag.FlagSet, list func(*pflag.FlagSet)) {
	option.Group(flags, "Which files", func() {
		f.addSelection(flags)
		if list != nil {
			list(flags)
		}
	})
	f.addTarget(flags)
	if list != nil {
		f.addSnapshot(flags)
	} else {
		option.Group(flags, howWritten, func() { f.AddPrivileged(flags) })
	}
	option.Group(flags, "Network", func() {
		f.AddNetwork(flags)
		option.Add(flags, &f.profile, "profile", "name", "none", "use the settings that tune --save found", parseProfile)
	})
	option.Group(flags, "Output", func() {
		option.Add(flags, &f.report, "report", "file", "", "write the outcome of each entry to a file, as JSON lines", option.ParseOutput)
		option.Add(flags, &f.Call.Manifest, "manifest", "file", "", "write digests of all files to a file; b3sum -c checks them", option.ParseOutput)
		f.AddOutput(flags)
	})
	addLetters(flags)
}

// AddOutput adds the flags about what is printed.
func (f *Flags) AddOutput(flags *pflag.FlagSet) {
	flags.BoolVar(&f.JSON, "json", false, "print JSON lines on standard output")
	flags.BoolVar(&f.explain, "explain", false, "show what limited the transfer at each moment, and why")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "also show path, buffers, streams, and any limit")
	flags.BoolVarP(&f.Quiet, "quiet", "q", false, "print only errors")
}

// LettersHelp is the help text about letters and units.
const LettersHelp = `You can use these letters of rsync: -q -v -n -u -c -x are in the list below. -z
is --compress auto. -a, -r, -H, -A, -X and -P change nothing: folders are always
sent whole, with times, modes, links, ACLs and attributes, owners as far as the
receiver may set them, and an interrupted transfer resumes.

Rates are in bits (200mbit, 200Mbit/s, 200Mbps) or bytes (20MB/s, 20MiB/s). Sizes
count in powers of 1000 (kB, MB, GB) or 1024 (KiB, MiB, GiB). 200Mb/s, 20M and 2G
have two meanings, so they are refused.`

// addLetters adds letters of rsync and rclone that have no long name here. The flag parser needs
// one, so that is the letter again.
func addLetters(flags *pflag.FlagSet) {
	for _, letter := range []string{"a", "r", "P", "H", "A", "X"} {
		flags.BoolP(letter, letter, false, "no effect")
		flags.Lookup(letter).Hidden = true
	}
	flags.BoolFuncP("z", "z", "--compress auto", func(string) error { return flags.Set("compress", option.Auto) })
	flags.Lookup("z").Hidden = true
}

// AddPrivileged adds the flag of commands that receive.
func (f *Flags) AddPrivileged(flags *pflag.FlagSet) {
	flags.BoolVar(&f.Call.Target.Privileged, "privileged", false, "keep setuid, setgid, devices and security attributes")
}

// AddNetwork adds the flags about the network.
func (f *Flags) AddNetwork(flags *pflag.FlagSet) {
	option.Add(flags, &f.Opt.Compress, "compress", "how", "none", "none, zstd, or auto where that is faster", parseCompress)
	option.Add(flags, &f.Opt.RateLimit, "rate-limit", "rate", "none", "limit the rate, such as 200mbit or 20MB/s", option.ParseLimit)
	option.Add(flags, &f.Opt.Priority, "priority", "how", option.Auto, "low, normal or high beside other traffic", option.ParsePriority)
	option.Add(flags, &f.Call.Deadline, "deadline", "time", "none", "end by 06:00, or within 3h; raises the priority", func(s string) (time.Time, error) { return option.ParseDeadline(s, time.Now()) })
	option.Add(flags, &f.Opt.RetryFor, "retry-for", "time", "0s", "retry a lost connection for this long, such as 10m", units.ParseTime)
	option.Add(flags, &f.Opt.Streams, "streams", "n", option.Auto, "number of parallel data streams", option.ParseAutoCount)
	option.Add(flags, &f.Opt.MaxStreams, "max-streams", "n", strconv.Itoa(fxfer.DefaultMaxStreams), "the most streams that auto may open", option.ParseCount)
	option.AddTransport(flags, &f.Opt)
	option.AddTuning(flags, &f.Opt.SockBuf, &f.Opt.Congestion)
	option.AddTrust(flags, &f.Opt)
}

// Check returns an error if flags contradict each other. Flags on the command line take precedence
// over other settings.
func (f *Flags) Check(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("streams") && flags.Changed("max-streams") && f.Opt.Streams > 0:
		return exit.Usage("leave one of the two out", "--max-streams limits --streams auto, but --streams fixes the number")
	case flags.Changed("max-delete") && !f.Call.Target.Delete:
		return exit.Usage("add --delete", "--max-delete bounds what --delete removes")
	case flags.Changed("allow-failed") && f.Call.Target.Snapshot == "":
		return exit.Usage("add --snapshot, or leave --allow-failed out: without snapshots, all other entries are sent anyway", "--allow-failed needs --snapshot")
	case !f.Call.Selection.Shard.All() && f.Call.Target.Snapshot != "":
		return exit.Usage("leave one of the two out", "--snapshot is sent by one process, and --shard by several")
	case f.Call.Target.DryRun && flags.Changed("manifest"):
		return exit.Usage("leave one of the two out", "--manifest lists files after a transfer, and --dry-run makes none")
	case flags.Changed("from0") && f.List == "":
		return exit.Usage("add --files-from", "--from0 says how the list of --files-from is to be read")
	case f.explain && (f.JSON || f.Quiet):
		return exit.Usage("--json carries all of it", "--explain is for people: it excludes --json and --quiet")
	case flags.Changed("verbose") && flags.Changed("quiet") && f.verbose && f.Quiet:
		return exit.Usage("leave one of the two out", "--verbose and --quiet exclude each other")
	case flags.Changed("json") && flags.Changed("quiet") && f.JSON && f.Quiet:
		return exit.Usage("leave one of the two out", "--json and --quiet exclude each other")
	}
	if f.Opt.Streams > 0 {
		f.Opt.MaxStreams = 0 // it is a setting for auto only
	}
	if f.JSON && f.Quiet {
		f.JSON, f.Quiet = !flags.Changed("quiet"), flags.Changed("quiet")
	}
	return nil
}
