package backup

import (
	"fmt"
	"io"
	"time"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/tune"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// showTunes prints the experiments that began since a time.
func showTunes(w io.Writer, home string, since time.Time, asJSON bool) error {
	all, err := backup.OpenStore(home).Tunes(since)
	switch {
	case err != nil:
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	case asJSON:
		for i := range all {
			term.JSON(w, struct {
				Type string `json:"type"`
				*backup.Tune
			}{"tune", &all[i]})
		}
	case len(all) == 0:
		fmt.Fprintf(w, "no experiment began since %s\n", since.Local().Format("2006-01-02 15:04"))
	default:
		term.Records(w, append([][]string{{"began", "server", "defaults", "since before", "best setting", "gain", "runs", "comment"}}, tuneRows(all)...), 2)
	}
	return nil
}

// tuneRows has a row for each server of each experiment, oldest first.
func tuneRows(all []backup.Tune) (rows [][]string) {
	before := map[string]float64{} // goodput of the defaults, by server
	for i := range all {
		for k := range all[i].Servers {
			s := &all[i].Servers[k]
			row := []string{all[i].Started.Local().Format("2006-01-02 15:04"), term.OneLine(s.Name), "", "", "", "", "", term.OneLine(all[i].Comment)}
			if d := s.Find(tune.Setting{}); d != nil && len(d.Runs) > 0 {
				now := d.Goodput.Mean
				row[2], row[6] = units.Rate(now), fmt.Sprint(len(d.Runs))
				if earlier := before[s.Name]; earlier > 0 {
					row[3] = fmt.Sprintf("%+.1f %%", 100*(now/earlier-1))
				}
				before[s.Name] = now
				if s.Best != nil {
					row[4] = s.Best.String()
				}
				if best := &s.Results[0]; s.Best != nil && *s.Best != (tune.Setting{}) {
					row[5] = fmt.Sprintf("%+.1f %%", 100*best.Gain.Mean/now)
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}
