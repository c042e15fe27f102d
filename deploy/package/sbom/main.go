// Sbom writes the bill of materials of a program from what its linker noted, as CycloneDX 1.5. The same
// program gives the same bytes.
//
//	go run ./deploy/package/sbom PROGRAM PROGRAM.cdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

type document struct {
	BOMFormat   string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM FILE")
		os.Exit(2)
	}
	file, err := os.Create(os.Args[2])
	if err == nil {
		err = errors.Join(write(file, os.Args[1]), file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	d := document{BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1}
	d.Metadata.Component = component{
		Type: "application", Ref: "program", Name: info.Main.Path, Version: info.Main.Version, PURL: "pkg:golang/" + info.Main.Path,
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	d.Components = append(d.Components, component{Type: "library", Ref: "std", Name: "std", Version: std, PURL: "pkg:golang/std@" + std})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
		c.Ref = c.PURL
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(raw) == sha256.Size {
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}} // of the module's files, as go.sum has it
		}
		d.Components = append(d.Components, c)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(d)
}
