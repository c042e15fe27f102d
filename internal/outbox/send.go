package outbox

import (
	"context"
	"iter"
	"path/filepath"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// EarlyWith returns the Early of a Watcher of dir that sends to target, with the limit of its Send.
func EarlyWith(client *fxfer.Client, dir string, target fxfer.URL, limit *fxfer.Throttle) func(context.Context, func(context.Context) (string, int64, bool), func(string, int64, error)) error {
	return func(ctx context.Context, next func(context.Context) (string, int64, bool), result func(string, int64, error)) error {
		return client.SendEarly(ctx, dir, target, fxfer.Early{Next: next, Result: result, Throttle: limit})
	}
}

// SendWith returns the Send of a Watcher of dir that sends to target. The content decides whether
// the server has a file already: it may be removed here next. limit is as in fxfer.Transfer.
func SendWith(client *fxfer.Client, dir string, target fxfer.URL, limit *fxfer.Throttle) func(context.Context, iter.Seq[string], func(string) bool, func(Result)) error {
	return func(ctx context.Context, paths iter.Seq[string], intact func(string) bool, result func(Result)) error {
		call := fxfer.Transfer{
			Selection: fxfer.Selection{Intact: intact, Files: func(yield func(string, error) bool) {
				for p := range paths {
					if !yield(p, nil) {
						return
					}
				}
			}},
			Target: fxfer.Target{Checksum: true}, Throttle: limit,
			File: func(r fxfer.FileResult) {
				x := Result{Path: r.Path, Digest: r.Digest}
				if r.Outcome == fxfer.Failed {
					x.Err = r.Failure()
				}
				result(x)
			},
		}
		report, err := client.Send(ctx, []string{dir + string(filepath.Separator)}, target, call)
		if report != nil && report.Complete {
			return nil // what failed has its result
		}
		return err
	}
}
