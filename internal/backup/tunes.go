package backup

import (
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fxfer/fxfer/internal/path/tune"
)

var tunesBucket = []byte("tunes") // start in ns, sequence → Tune

// maxTunes is the largest number of experiments kept.
const maxTunes = 1000

// Tune is an experiment of fxfer tune in history.
type Tune struct {
	Started time.Time `json:"started"`
	Comment string    `json:"comment,omitempty"`
	*tune.Report
}

// AddTune adds an experiment to history.
func (s *Store) AddTune(t *Tune) error {
	return s.update(func(tx *bolt.Tx) error { return put(tx, tunesBucket, maxTunes, t.Started, t) })
}

// Tunes returns the experiments that began since a time, oldest first.
func (s *Store) Tunes(since time.Time) (all []Tune, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(tunesBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Seek(historyKey(since, 0)); k != nil; k, v = c.Next() {
			var t Tune
			if err := json.Unmarshal(v, &t); err != nil || t.Report == nil {
				return fmt.Errorf("history is damaged: %w", err)
			}
			all = append(all, t)
		}
		return nil
	})
	return all, err
}
