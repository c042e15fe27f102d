package snapshot

import (
	"bufio"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

const damagedSuffix = ".damaged" // files that are known to be damaged

// Damage says what is wrong with files of a complete snapshot, by path. It follows the number of
// damaged files.
type Damage map[string]string

// DamagedSince says that a file is damaged. what names how: different, missing, unreadable.
func DamagedSince(what string, found time.Time) string {
	return what + " since " + found.UTC().Format(time.DateOnly) + " or before"
}

// ReadDamage returns the known damage of a complete snapshot, nil if there is none.
func ReadDamage(root *os.Root, name string) (Damage, error) {
	file, err := root.Open(name + damagedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	d := Damage{}
	err = eachLine(bufio.NewReaderSize(file, 4<<10), func(what, path string) error {
		d[path] = what
		return nil
	})
	return d, err
}

// WriteDamage records the known damage of a complete snapshot in the place of earlier records.
func WriteDamage(root *os.Root, name string, d Damage) error {
	if len(d) == 0 {
		return removeFiles(root, name+damagedSuffix)
	}
	l, err := createList(root, name+damagedSuffix)
	if err != nil {
		return err
	}
	defer l.discard()
	for _, path := range slices.Sorted(maps.Keys(d)) {
		if err := l.line(strings.Join(strings.Fields(d[path]), " "), path); err != nil {
			return err
		}
	}
	return l.keep()
}

// SpreadToLinks adds the other names that damaged files have in a complete snapshot. same reports
// whether two paths still name one file.
func (d Damage) SpreadToLinks(root *os.Root, name string, same func(a, b string) bool) error {
	if len(d) == 0 {
		return nil
	}
	spread := func(from, to string) {
		if what, ok := d[from]; ok && d[to] == "" && same(from, to) {
			d[to] = what
		}
	}
	// The first time finds the first names of files, the second time all others.
	for range 2 {
		err := Links(root, name, func(first, path string) error {
			spread(path, first)
			spread(first, path)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
