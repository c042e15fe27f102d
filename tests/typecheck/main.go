// Typecheck looks for what does not compile on other systems, in the module of the current folder with its tests:
//
//	go run ./tests/typecheck darwin/arm64 windows/amd64
//
// It reads source and compiles nothing, which takes a fraction of a compiler's time. Of packages outside the module it
// checks declarations, and of the module's own the bodies of functions, too.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

func main() {
	var group errgroup.Group
	faults := make([][]string, len(os.Args)-1)
	for i, platform := range os.Args[1:] {
		group.Go(func() (err error) {
			faults[i], err = check(".", platform)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(2)
	}
	status := 0
	for i, platform := range os.Args[1:] {
		for _, fault := range faults[i] {
			fmt.Fprintf(os.Stderr, "%s: %s\n", platform, fault)
			status = 1
		}
	}
	os.Exit(status)
}

// check returns the errors that the packages of the module in dir have on a platform, sorted.
func check(dir, platform string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	system, processor, _ := strings.Cut(platform, "/")
	sizes := types.SizesFor("gc", processor)
	if sizes == nil {
		return nil, fmt.Errorf("%q is no platform such as darwin/arm64", platform)
	}
	listed, err := list(dir, "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	if err != nil {
		return nil, err
	}
	c := checker{dir: dir, sizes: sizes, files: token.NewFileSet(), checked: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range listed {
		c.check(p)
	}
	slices.Sort(c.faults)
	return slices.Compact(c.faults), nil // a package and its variant with tests share files
}

// listedPackage is what go list says of a package: "p", or "p [p.test]", which is p with its tests.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles, SFiles []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// list returns the packages of the module in dir and all that they import, dependencies first.
func list(dir string, env ...string) ([]listedPackage, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,SFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	var listed []listedPackage
	for decoder := json.NewDecoder(&stdout); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return listed, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		listed = append(listed, p)
	}
}

type checker struct {
	dir     string
	sizes   types.Sizes
	files   *token.FileSet
	checked map[string]*types.Package
	faults  []string
}

func (c *checker) check(p listedPackage) {
	path, _, _ := strings.Cut(p.ImportPath, " ")
	if path == "unsafe" || strings.HasSuffix(path, ".test") { // what starts the tests of a package is generated
		return
	}
	ours := p.Module != nil && p.Module.Main
	config := types.Config{
		Importer:         imports{c.checked, p.ImportMap},
		IgnoreFuncBodies: !ours,
		Sizes:            c.sizes,
		Error:            c.fault,
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	parsed := c.parse(p)
	c.checked[p.ImportPath], _ = config.Check(path, c.files, parsed, nil) // Error has the errors
	if ours && len(p.SFiles) == 0 {
		c.bodies(parsed)
	}
}

func (c *checker) parse(p listedPackage) []*ast.File {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			c.fault(err)
		}
		if file != nil {
			parsed = append(parsed, file)
		}
	}
	return parsed
}

// bodies looks for functions without a body, in a package without assembly. The type checker leaves them to the compiler.
func (c *checker) bodies(files []*ast.File) {
	for _, file := range files {
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Body == nil {
				c.fault(fmt.Errorf("%s: missing function body: %s", c.files.Position(f.Pos()), f.Name.Name))
			}
		}
	}
}

func (c *checker) fault(err error) {
	c.faults = append(c.faults, strings.TrimPrefix(err.Error(), c.dir+string(filepath.Separator)))
}

// imports finds what a package imports: of two variants, one with tests, the one that belongs to its test.
type imports struct {
	checked map[string]*types.Package
	by      map[string]string
}

func (i imports) Import(path string) (*types.Package, error) {
	if mapped, ok := i.by[path]; ok {
		path = mapped
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("is not among the dependencies")
}
