package backup

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Client is the Courier that goes over the network, with the identity of fxfer's folder Home; "" is the user's.
type Client struct{ Home string }

// client returns the client for a job's server.
func (c *Client) client(j *Job, opt fxfer.Options) (*fxfer.Client, error) {
	opt.Home, opt.Streams, opt.Compress = c.Home, j.Streams, j.Compress
	return fxfer.NewClient(opt)
}

// Transfer implements Courier.
func (c *Client) Transfer(ctx context.Context, t *Task) (*fxfer.Report, error) {
	j := t.Job
	opt := fxfer.Options{Throttle: t.Limit, Progress: t.Progress, Notice: t.Notice}
	if j.Mode == Snapshots {
		return nil, &fxfer.Error{Kind: fxfer.KindUsage, Err: errors.New("snapshots are not there yet"), Remedy: "mode: mirror"}
	}
	if j.Command == "" {
		opt.Source = fxfer.Source{Rules: j.Filters, MaxSize: j.MaxSize, OneFileSystem: j.OneFileSystem}
		opt.Target.Delete = true
	}
	client, err := c.client(j, opt)
	if err != nil {
		return nil, err
	}
	if j.Command == "" {
		return client.Send(ctx, j.Sources, j.Destination)
	}
	target := j.Destination
	target.Path, target.TrailingSlash = path.Join(target.Path, j.File), false
	ctx, cancel := context.WithCancel(ctx)
	out, done, err := outputOf(ctx, j.Command, t.Env)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the command: %w", err)
	}
	defer done()
	defer cancel()
	return client.SendStream(ctx, out, target)
}

// Prune implements Courier.
func (c *Client) Prune(context.Context, *Job) ([]string, error) { return nil, nil }
