package option

import (
	"cmp"
	"context"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Place is a URL, or all that fit a pattern.
type Place struct {
	URL      fxfer.URL
	elements []string // below URL, with patterns; none without
}

// HasPattern reports whether the place may be several.
func (p Place) HasPattern() bool { return len(p.elements) > 0 }

// ParsePlace reads a URL whose path may have patterns.
func ParsePlace(s string) (p Place, err error) {
	p.URL, p.elements, err = fxfer.ParsePattern(s)
	switch {
	case err != nil:
		return p, exit.Usage(urlForm, "%w", err)
	case p.URL.Share == "":
		return p, exit.Usage("`fxfer ls "+p.URL.Redacted()+"` lists the shares", "%s names no share: expected fxfer://host/share", p.URL.Redacted())
	}
	return p, nil
}

// Entries returns what fits the pattern.
func (p Place) Entries(files *fxfer.Files) ([]fxfer.Entry, error) {
	return files.Glob(p.URL.Path, p.elements)
}

// Expand returns the URLs of places. It asks the servers what fits patterns. If a server could not read
// all of a folder, Expand returns what fits of the rest together with the first such error.
func Expand(ctx context.Context, client *fxfer.Client, places []Place) (urls []fxfer.URL, err error) {
	for _, p := range places {
		if !p.HasPattern() {
			urls = append(urls, p.URL)
			continue
		}
		fits, failed := p.expand(ctx, client)
		if len(fits) == 0 {
			return nil, failed
		}
		urls = append(urls, fits...)
		err = cmp.Or(err, failed)
	}
	return urls, err
}

func (p Place) expand(ctx context.Context, client *fxfer.Client) (urls []fxfer.URL, err error) {
	files, err := client.Files(ctx, p.URL)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	entries, err := p.Entries(files)
	for _, e := range entries {
		u := p.URL
		u.Path = e.Path
		urls = append(urls, u)
	}
	return urls, err
}
