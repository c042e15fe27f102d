// Command diagnose limits transfers in known ways, one at a time, and compares fxfer's verdict with
// the cause. The result is the confusion matrix in docs/evidence/diagnose.md. If the remedy that
// fxfer prints is a sysctl or a flag, the command applies it and compares the gain with the
// forecast. It needs Linux, root, /dev/fuse and a cpu cgroup. Meanwhile it changes settings
// of the whole machine, such as rmem_max, and then restores them.
//
//	go run ./tests/diagnose [-rows REGEXP] [-seed FIRST] [-seeds N] [-remedies=false] [-out docs/evidence/diagnose.md] [-keep DIR]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

func main() {
	code, ran, err := hosts.Apart()
	if !ran && err == nil {
		err = compare()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "diagnose: error: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func compare() (err error) {
	rows := flag.String("rows", "", "only the causes whose name matches this `regexp`")
	seed := flag.Uint64("seed", 0, "`number` of the first trial of each cause; 0 is 1")
	seeds := flag.Uint64("seeds", 0, "trials of each cause; 0 is 3, or 1 with -seed")
	remedies := flag.Bool("remedies", true, "apply the first remedy where it is a sysctl or a flag")
	out := flag.String("out", "", "write the report to this `file`, such as docs/evidence/diagnose.md, instead of standard output")
	keep := flag.String("keep", "", "keep what fxfer printed in this `folder`")
	flag.Parse()
	pattern, err := regexp.Compile(*rows)
	switch {
	case err != nil:
		return fmt.Errorf("-rows: %w", err)
	case flag.NArg() > 0:
		return fmt.Errorf("%q is one argument too many", flag.Arg(0))
	}
	if *seeds == 0 && *seed > 0 {
		*seeds = 1
	}
	*seed, *seeds = cmp.Or(*seed, 1), cmp.Or(*seeds, 3)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	removeQuotas()
	folder, err := hosts.NewFolder(folderPrefix, "src", "in", "home", "tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Remove()) }()
	h := &harness{Folder: folder}
	if err := h.build(ctx, root); err != nil {
		return err
	}

	var results []result
	begin := time.Now()
	for _, c := range causes {
		if !pattern.MatchString(c.name) {
			continue
		}
		for i := range *seeds {
			r := h.examine(ctx, c, *seed+i, *remedies)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(begin).Seconds(), r)
			results = append(results, r)
			if *keep != "" {
				if err := os.WriteFile(filepath.Join(*keep, fmt.Sprintf("%s-%d.jsonl", c.name, r.seed)), []byte(r.run.stdout), 0o644); err != nil {
					return err
				}
			}
		}
	}
	text := report(results, hosts.Describe(begin)+load())
	if *out == "" {
		fmt.Print(text)
		return nil
	}
	path := *out
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// load says how busy the machine was of late. Verdicts on a busy one are about its pauses, too.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) >= 3 {
		return fmt.Sprintf(" The load average was %s at the end, over 15 minutes.", f[2])
	}
	return ""
}

// examine runs one trial. If asked to, it runs a second one with the remedy.
func (h *harness) examine(ctx context.Context, c cause, seed uint64, remedies bool) result {
	t := c.trial(newDraws(c.name, seed))
	r := result{cause: c, seed: seed, trial: t}
	r.run, r.err = h.undisturbed(ctx, &t, nil, "")
	if r.err != nil || !remedies || !r.correct() {
		return r
	}
	v := r.run.Limits[0]
	if len(v.Remedies) == 0 || v.Remedies[0].Expect <= 0 || v.Remedies[0].Sysctl == nil && v.Remedies[0].Flag == "" {
		return r
	}
	cure := &cure{remedy: v.Remedies[0]}
	if t.files == 0 && t.stdin == 0 { // a trial that ends too soon shows slow start alone
		t.bytes = max(t.bytes, bytesAt(cure.remedy.Expect))
	}
	t.fails = false
	var after run
	after, cure.err = h.undisturbed(ctx, &t, &cure.remedy, v.Side)
	cure.goodput = after.Goodput
	r.cure = cure
	return r
}
