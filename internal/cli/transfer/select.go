package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// ruleFlag adds rules to a list. Several flags share the list, because the order of rules on the
// command line matters. It implements pflag.Value and pflag.SliceValue.
type ruleFlag struct {
	kind  string
	rules *[]string
	read  func(string) ([]string, error)
}

func (r *ruleFlag) String() string { return "" }
func (r *ruleFlag) Type() string   { return r.kind }

func (r *ruleFlag) Set(s string) error {
	rules, err := r.read(s)
	if err == nil {
		_, err = filter.New(filter.Options{Rules: rules})
	}
	if err != nil {
		return err
	}
	*r.rules = append(*r.rules, rules...)
	return nil
}

// Append implements pflag.SliceValue.
func (r *ruleFlag) Append(s string) error { return r.Set(s) }

// Replace implements pflag.SliceValue.
func (r *ruleFlag) Replace(values []string) error {
	*r.rules = nil
	for _, s := range values {
		if err := r.Set(s); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (r *ruleFlag) GetSlice() []string { return *r.rules }

func excludeRule(s string) ([]string, error) { return []string{s}, nil }

func includeRule(s string) ([]string, error) { return []string{"!" + s}, nil }

func rulesOf(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rules, err := filter.ReadRules(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rules, nil
}

func parseMaxSize(s string) (int64, error) {
	n, err := units.ParseSize(s)
	if err == nil && n == 0 {
		err = errors.New("0 would leave out all files but empty ones: give 1 or more")
	}
	return n, err
}

func parseSync(s string) (fxfer.Sync, error) {
	switch p := fxfer.Sync(s); p {
	case fxfer.SyncBatch, fxfer.SyncFile, fxfer.SyncNone:
		return p, nil
	}
	return "", fmt.Errorf("%q is none of batch, file and none", s)
}

func parseDelta(s string) (fxfer.Delta, error) {
	switch d := fxfer.Delta(s); d {
	case fxfer.DeltaAuto, fxfer.DeltaFixed, fxfer.DeltaChunks, fxfer.DeltaNone:
		return d, nil
	}
	return "", fmt.Errorf("%q is none of auto, fixed, chunks and none", s)
}

func parseCompress(s string) (string, error) {
	switch s {
	case option.Auto, "zstd", "none":
		return s, nil
	}
	return "", fmt.Errorf("%q is none of auto, zstd and none", s)
}

// AddRules adds the flags of rules that leave files out.
func AddRules(flags *pflag.FlagSet, rules *[]string) {
	flags.Var(&ruleFlag{"rule", rules, excludeRule}, "exclude", "leave out files that this gitignore rule matches; repeatable")
	flags.Var(&ruleFlag{"rule", rules, includeRule}, "include", "keep files that this rule matches; the last match decides")
	flags.Var(&ruleFlag{"file", rules, rulesOf}, "exclude-from", "read rules from a file such as .gitignore")
}

// addSelection adds the flags that select what is sent.
func (f *Flags) addSelection(flags *pflag.FlagSet) {
	s := &f.Call.Selection
	AddRules(flags, &s.Rules)
	option.Add(flags, &s.MaxSize, "max-size", "size", "", "leave out files larger than this, such as 2GiB", parseMaxSize)
	option.Add(flags, &s.NewerThan, "newer-than", "time", "", "leave out files older than this: 2026-11-21, or 7d for 7 days",
		func(text string) (time.Time, error) { return option.ParseNewer(text, time.Now()) })
	flags.BoolVarP(&s.OneFileSystem, "one-file-system", "x", false, "don't descend into other file systems")
}

// AddList adds the flags of send that select by a list.
func (f *Flags) AddList(flags *pflag.FlagSet) {
	option.Add(flags, &f.List, "files-from", "file", "", "send only the listed paths below SRC/; - is standard input", option.ParseFile)
	flags.BoolVar(&f.nul, "from0", false, "paths in that list end with a NUL byte")
	option.Add(flags, &f.Call.Selection.Shard, "shard", "i/n", "", "send part i of n, counted from 0; finish without this flag", fxfer.ParseShard)
	option.Add(flags, &f.Exec, "exec", "command", "", "send the output of this command, if it succeeds", parseCommand)
}

func parseCommand(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("the command is empty")
	}
	return s, nil
}

// howWritten is the title of a group of flags.
const howWritten = "How it is written"

// addTarget adds the flags about the target.
func (f *Flags) addTarget(flags *pflag.FlagSet) {
	t := &f.Call.Target
	option.Group(flags, "What is replaced", func() {
		flags.BoolVarP(&t.Checksum, "checksum", "c", false, "compare content instead of size and time")
		flags.BoolVarP(&t.Update, "update", "u", false, "skip files that are newer at the target")
		flags.BoolVar(&t.Existing, "existing", false, "only update files that the target has")
		flags.BoolVar(&t.IgnoreExisting, "ignore-existing", false, "skip files that the target has")
	})
	option.Group(flags, "Mirror", func() {
		flags.BoolVar(&t.Delete, "delete", false, "at the end, remove files that the source does not have")
		option.Add(flags, &t.MaxDelete, "max-delete", "n", "", "delete nothing if more than n entries would be deleted", parseEntries)
		option.Add(flags, &t.BackupDir, "backup-dir", "dir", "", "keep removed and replaced files here, relative to the target", option.ParseFile)
		flags.BoolVarP(&t.DryRun, "dry-run", "n", false, "only list what would change")
	})
	option.Group(flags, howWritten, func() {
		option.Add(flags, &t.Sync, "sync", "when", string(fxfer.SyncBatch), "when to flush files to disk: batch, file or none", parseSync)
		option.Add(flags, &t.Delta, "delta", "how", option.Auto, "find what changed: auto, fixed, chunks or none", parseDelta)
		option.Add(flags, &t.Readback, "verify", "how", "digest", "check what arrived: digest, or readback from disk", parseVerify)
		flags.BoolVar(&t.NumericIDs, "numeric-ids", false, "map owner and group by number, not by name")
		flags.BoolVar(&t.Strict, "strict", false, "fail if the target can't store something, such as an owner")
	})
}

// addSnapshot adds the flag of send that creates a snapshot.
func (f *Flags) addSnapshot(flags *pflag.FlagSet) {
	option.Group(flags, "Snapshots", func() {
		option.Add(flags, &f.Call.Target.Snapshot, "snapshot", "time", "", "send into a new snapshot, named after this time, or now", parseSnapshot)
		flags.Lookup("snapshot").NoOptDefVal = fxfer.SnapshotAuto
		option.Add(flags, &f.Call.Target.AllowFailed, "allow-failed", "n", "0", "show the snapshot even if up to n entries failed", parseAllowed)
	})
}

func parseAllowed(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > fxfer.MaxAllowFailed {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", s, fxfer.MaxAllowFailed)
	}
	return int64(n), nil
}

func parseSnapshot(s string) (string, error) {
	if s == fxfer.SnapshotAuto {
		return s, nil
	}
	return ParseSnapshotName(s)
}

// ParseSnapshotName reads the name of a snapshot.
func ParseSnapshotName(s string) (string, error) {
	_, err := snapshot.ParseName(s)
	return s, err
}

func parseEntries(s string) (int64, error) {
	n, err := option.ParseCount(s)
	return int64(n), err
}

// Settle applies the settings that are not on the command line, and checks all flags. The rules of
// the command line come after those of the settings, because later rules take precedence.
func (f *Flags) Settle(c *cobra.Command) error {
	given := len(f.Call.Selection.Rules)
	if err := option.ApplySettings(c); err != nil {
		return err
	}
	rules := f.Call.Selection.Rules
	f.Call.Selection.Rules = slices.Concat(rules[given:], rules[:given])
	if err := f.applyProfile(c.Flags()); err != nil {
		return err
	}
	return f.Check(c.Flags())
}

// OpenList prepares the list of --files-from, if there is one. The caller calls done at the end.
// Standard input is copied to a file, because the list is read again after a lost connection.
func (f *Flags) OpenList(stdin io.Reader) (done func(), err error) {
	name, done := f.List, func() {}
	switch name {
	case "":
		return done, nil
	case "-":
		copied, err := os.CreateTemp("", "fxfer-list-*")
		if err != nil {
			return nil, err
		}
		name, done = copied.Name(), func() { _ = os.Remove(copied.Name()) }
		_, err = io.Copy(copied, stdin)
		if err = errors.Join(err, copied.Close()); err != nil {
			done()
			return nil, fmt.Errorf("--files-from -: %w", err)
		}
	}
	f.listFaults = make(chan error, 1)
	f.Call.Selection.Files = listed(name, f.List, f.nul, f.listFaults)
	return done, nil
}

// listed reads a list each time somebody ranges over it. Messages call the list shown. The first
// fault also goes to faults.
func listed(name, shown string, nul bool, faults chan<- error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in, err := os.Open(name)
		if err != nil {
			yield("", fmt.Errorf("--files-from: %w", err))
			return
		}
		defer in.Close()
		for path, err := range filter.ReadFiles(in, nul) {
			if err != nil {
				err = fmt.Errorf("--files-from %s: %w", shown, err)
				select {
				case faults <- err:
				default: // the list was read before, and had the same fault
				}
			}
			if !yield(path, err) {
				return
			}
		}
	}
}

// ListFault returns the error of a transfer with --files-from. If a line of the list is wrong, that
// is a wrong use of the command, and not an error of the source's disk, as the transfer reports it.
func (f *Flags) ListFault(err error) error {
	var unread *fs.PathError
	select {
	case fault := <-f.listFaults:
		if err != nil && !errors.As(fault, &unread) {
			return exit.Usage("each path is relative to SRC/, and stays below it", "%w", fault)
		}
	default:
	}
	return err
}
