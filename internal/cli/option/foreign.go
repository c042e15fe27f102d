package option

import (
	"regexp"

	"github.com/spf13/pflag"
)

// ofCopyTools are hints against flags that other programs have: rsync, rclone, scp, lftp, curl.
// Flags that would change nothing are not accepted, except for letters that people type without
// thinking: see transfer.Flags.
var ofCopyTools = hints([]foreign{
	{"--rate-limit bounds the rate, such as --rate-limit 20MB/s",
		[]string{"bwlimit", "limit-rate", "max-rate", "bandwidth", "l"}},
	{"fxfer shows progress on a terminal; --quiet hides it, --json prints it",
		[]string{"progress", "stats", "stats-one-line", "info"}},
	{"--streams sets the number of parallel streams; auto is the default",
		[]string{"parallel", "transfers", "checkers", "multi-thread-streams", "threads", "connections",
			"jobs", "j", "use-pget-n"}},
	{"--compress zstd or --compress auto compresses; fxfer chooses the level",
		[]string{"compress-level", "compress-choice", "zc", "zl", "gzip", "zstd", "C"}},
	{"folders are always sent whole, with times, modes, owners and links: leave it out",
		[]string{"archive", "recursive", "times", "perms", "owner", "group", "links", "hard-links",
			"xattrs", "acls", "devices", "specials", "metadata", "create-empty-src-dirs", "t",
			"p", "o", "g", "D", "R", "dirs", "d"}},
	{"the same command resumes: unfinished files are always kept",
		[]string{"partial", "partial-dir", "append", "append-verify", "continue", "resume", "inplace"}},
	{"links are sent as links; name the folder that a link points to as a source",
		[]string{"copy-links", "copy-unsafe-links", "safe-links", "keep-dirlinks", "L", "k"}},
	{"--delete removes files at the end, and spares excluded ones",
		[]string{"mirror", "del", "delete-before", "delete-during", "delete-after", "delete-excluded"}},
	{"--backup-dir keeps removed and replaced files",
		[]string{"backup", "b", "suffix"}},
	{"--snapshot makes hard links to the snapshot before",
		[]string{"link-dest", "compare-dest", "copy-dest"}},
	{"--delta none sends files whole",
		[]string{"whole-file", "W", "no-whole-file", "block-size"}},
	{"--checksum compares content; without it, size and time decide",
		[]string{"size-only", "ignore-times", "modify-window", "I"}},
	{"--newer-than leaves out older files, such as --newer-than 7d",
		[]string{"max-age", "newer"}},
	{"--exclude and --include take gitignore rules",
		[]string{"filter", "f", "cvs-exclude", "min-size", "min-age"}},
	{"--exclude-from reads rules; a rule that begins with ! includes",
		[]string{"include-from", "filter-from", "merge"}},
	{"--from0 says that the paths of --files-from end with NUL",
		[]string{"0", "null", "files-from-raw"}},
	{"--retry-for keeps trying, such as --retry-for 10m",
		[]string{"timeout", "contimeout", "retries", "low-level-retries", "retry", "max-time", "T"}},
	{"--sync file flushes each file to the disk before it gets its name",
		[]string{"fsync"}},
	{"--dry-run lists what would change; --report writes the outcome of each file",
		[]string{"itemize-changes", "i", "log-file", "list-only"}},
	{"--sock-buf sets the socket buffers, such as --sock-buf 4MiB",
		[]string{"window", "w", "buffer-size", "sockopts"}},
	{"the port is part of the URL: fxfer://host:7433/share",
		[]string{"port"}},
	{"fxfer knows hosts by their keys: see `fxfer invite --help`",
		[]string{"password-file", "rsh", "e", "identity", "user", "password"}},
	{"--json prints lines for programs",
		[]string{"use-json-log", "out-format"}},
	{"--verbose shows more",
		[]string{"log-level", "debug", "human-readable"}},
	{"holes in files stay holes",
		[]string{"sparse", "S"}},
	{"fxfer doesn't remove sources: verify first, then delete them",
		[]string{"remove-source-files", "remove-sent-files", "move"}},
	{"--transport tcp or --transport quic chooses the transport",
		[]string{"tcp", "udp", "quic"}},
	{"--verify readback reads files again from the disk",
		[]string{"check", "readback", "check-first"}},
	{"--ignore-existing skips files that the target has",
		[]string{"immutable", "no-clobber", "skip-existing"}},
})

// foreign is a hint with the names of the flags that it is against.
type foreign struct {
	hint  string
	names []string
}

// hints returns the hints by the names of flags.
func hints(all []foreign) map[string]string {
	byName := map[string]string{}
	for _, f := range all {
		for _, name := range f.names {
			byName[name] = f.hint
		}
	}
	return byName
}

var flagInText = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

// ofCopyTool returns a hint against a flag of another program, if the command transfers files and
// has the flags that the hint names. Otherwise it returns "".
func ofCopyTool(flags *pflag.FlagSet, name string) string {
	hint := ofCopyTools[name]
	if flags.Lookup("rate-limit") == nil || flags.Lookup("compress") == nil {
		return ""
	}
	for _, m := range flagInText.FindAllStringSubmatch(hint, -1) {
		if m[1] != "help" && flags.Lookup(m[1]) == nil {
			return ""
		}
	}
	return hint
}
