package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	folderPrefix = "fxfer-bench-"

	headroom = 1500 * mb // memory for the programs, besides that for the files
)

// folder contains all files of a run, in memory. Nothing outside of it is written. Commands run in
// it, so that their arguments need no paths.
//
//	fxfer       the program
//	src/ID/     a payload
//	in/         where it arrives; emptied before each run
//	conf/, home/, tmp/
type folder struct {
	*hosts.Folder
	loads   map[payload]*load
	digests map[payload]string // for one file of each content
}

// load is a payload on the sender's disk.
type load struct {
	payload
	dir     string            // relative to the folder
	names   []string          // of the files in it, or of the folders of a tree
	digests map[string]string // by name, as b3sum prints them; none for a tree
}

// paths returns the files, or the folders of a tree, relative to the folder.
func (l *load) paths() []string {
	paths := make([]string, len(l.names))
	for i, name := range l.names {
		paths[i] = l.dir + "/" + name
	}
	return paths
}

// newFolder makes the folder, and removes the rest of a killed run. The caller calls Remove.
func newFolder() (*folder, error) {
	f, err := hosts.NewFolder(folderPrefix, "src", "in", "conf", "home", "tmp")
	if err != nil {
		return nil, err
	}
	return &folder{Folder: f, loads: map[payload]*load{}, digests: map[payload]string{}}, nil
}

// keep makes the payloads and loads them into memory. It removes all others. It fails if memory is
// too small for the payloads and for one more copy of the largest.
func (f *folder) keep(ctx context.Context, wanted []payload) error {
	want := map[payload]bool{}
	var need, largest int64
	for _, p := range wanted {
		if !want[p] && f.loads[p] == nil {
			need += p.room()
		}
		want[p] = true
		largest = max(largest, p.room())
	}
	for p, l := range f.loads {
		if !want[p] {
			if err := os.RemoveAll(f.Abs(l.dir)); err != nil {
				return err
			}
			delete(f.loads, p)
		}
	}
	free, err := freeMemory()
	if err != nil {
		return err
	}
	if need += largest + headroom; need > free {
		return fmt.Errorf("%s of memory are needed, %s are free", showSize(need), showSize(free))
	}
	for _, p := range wanted {
		if f.loads[p] != nil {
			continue
		}
		l, err := f.make(ctx, p)
		if err != nil {
			return fmt.Errorf("make %s: %w", p, err)
		}
		f.loads[p] = l
	}
	return nil
}

func (f *folder) make(ctx context.Context, p payload) (*load, error) {
	l := &load{payload: p, dir: fmt.Sprintf("src/%dx%d", p.files, p.size), digests: map[string]string{}}
	if err := f.Mkdir(l.dir); err != nil {
		return nil, err
	}
	if p.tree() {
		return l, f.plant(ctx, l)
	}
	for i := range p.files {
		name := "data"
		if p.files > 1 {
			name = fmt.Sprintf("data%02d", i)
		}
		l.names = append(l.names, name)
		path := f.Abs(l.dir + "/" + name)
		if err := f.Fill(ctx, l.dir+"/"+name, p.size, byte(i)); err != nil {
			return nil, err
		}
		digest, err := b3sum(ctx, path)
		if err != nil {
			return nil, err
		}
		l.digests[name] = digest
	}
	return l, nil
}

// sizes are the sizes of eight consecutive text files, in 64ths of the mean.
var sizes = [8]int64{1, 4, 16, 32, 64, 64, 128, 203}

// plant makes the tree of l. It belongs to the ordinary user, because the files of others could not
// arrive unchanged.
func (f *folder) plant(ctx context.Context, l *load) error {
	random := rand.NewChaCha8([32]byte{})
	each := l.files / l.folders
	for d := range l.folders {
		l.names = append(l.names, fmt.Sprintf("folder%03d", d))
		dir := l.dir + "/" + l.names[d]
		if err := f.Mkdir(dir); err != nil {
			return err
		}
		for i := range each {
			if err := ctx.Err(); err != nil {
				return err
			}
			content := make([]byte, l.size)
			if l.text {
				content = prose(random, l.size*sizes[i%len(sizes)]/64)
			} else {
				_, _ = random.Read(content) // never fails
			}
			path := f.Abs(fmt.Sprintf("%s/file%06d", dir, d*each+i))
			if err := errors.Join(os.WriteFile(path, content, 0o644), os.Chown(path, hosts.OrdinaryUser, hosts.OrdinaryUser)); err != nil {
				return err
			}
		}
	}
	return nil
}

// prose returns this many bytes of text. As in real text, few words are frequent, many are rare,
// and some phrases repeat. It compresses slightly less well than documentation and header files.
func prose(random *rand.ChaCha8, size int64) []byte {
	text := make([]byte, 0, size+200)
	for int64(len(text)) < size {
		bits := random.Uint64()
		rank := uint64(1) << (bits & 15) >> (bits >> 4 & 3) // near a power of two, so that all octaves are equally frequent
		word := (rank + bits>>8%(rank+1)) * 0x9E3779B97F4A7C15
		for range 2 + word>>60%8 {
			text = append(text, "etaoinshrdlucmfw"[word&15])
			word >>= 4
		}
		end := byte(' ')
		if bits>>32&15 == 0 {
			end = '\n'
		}
		text = append(text, end)
		if from := int64(bits >> 36 % 4096); bits>>48&15 == 0 && from < int64(len(text)) {
			text = append(text, text[from:min(from+16+int64(bits>>52&127), int64(len(text)))]...)
		}
	}
	return text[:size]
}

func b3sum(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, "b3sum", "--no-names", path).Output()
	if err != nil {
		return "", fmt.Errorf("b3sum: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// warm uses as much memory as the files of the next run will take, and frees it. In a virtual
// machine the first use of memory is slow.
func (f *folder) warm(size int64) (err error) {
	path := f.Abs("tmp/warm")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	defer file.Close()
	zeros := make([]byte, 1<<20)
	for left := size; left > 0; left -= int64(len(zeros)) {
		if _, err := file.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
			return fmt.Errorf("warm the memory: %w", err)
		}
	}
	return nil
}

// arrived checks that in/ contains as many bytes in as many files as l.
func (f *folder) arrived(l *load) error {
	files, bytes := 0, int64(0)
	err := filepath.WalkDir(f.Abs("in"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		bytes += info.Size()
		return nil
	})
	if err != nil {
		return err
	}
	if files != l.files || bytes != l.bytes() {
		return fmt.Errorf("%d bytes in %d files arrived, %d in %d were sent", bytes, files, l.bytes(), l.files)
	}
	return nil
}

// compare returns an error unless each file of the tree l has arrived with the same content.
func (f *folder) compare(l *load) error {
	source, target := f.Abs(l.dir), f.Abs("in")
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		sent, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(target, rel))
		if err == nil && !bytes.Equal(sent, got) {
			err = fmt.Errorf("%s arrived with other content", rel)
		}
		return err
	})
}

// landed returns how many bytes the files in in/ take so far. It ignores files that vanish
// meanwhile.
func (f *folder) landed() int64 {
	var sum int64
	// Files that are renamed meanwhile cause errors.
	_ = filepath.WalkDir(f.Abs("in"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += allocated(info)
		}
		return nil
	})
	return sum
}
