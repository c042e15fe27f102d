// Command fxfer moves files over long fat pipes.
package main

import (
	"os"

	"github.com/fxfer/fxfer/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
