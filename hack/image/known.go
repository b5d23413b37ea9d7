// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"moult.dev/moult/hack/build"
)

// The images that a checkout builds. Manifests, tests and the demo use these names; they are on no registry, so
// pods that use them set `imagePullPolicy: Never`.
const (
	// Operator is the image of the operator, in which Jobs of Plans also wait, by `moult drain`.
	Operator = "moult.dev/moult:dev"
	// Agent is the image of the node agent.
	Agent = "moult.dev/moult-agent:dev"
	// Busybox is a shell for tests and the demo.
	Busybox = "moult.dev/busybox:dev"
)

// NonRoot is the user and group that Moult's own images run as.
const NonRoot = "65532:65532"

// Name is the last part of an image's name, without the tag: that of the program in it.
func Name(tag string) string {
	repository, _, _ := strings.Cut(path.Base(tag), ":")
	return repository
}

// Program is the image of one static program, run by NonRoot from the root directory. The tag is one of this
// package's names; a version other than "" adds a second tag and a label.
func Program(tag, binary, version string) Spec {
	entrypoint := "/" + filepath.Base(binary)
	repository, _, _ := strings.Cut(tag, ":")
	spec := Spec{
		Tags:       []string{tag},
		Entrypoint: []string{entrypoint},
		User:       NonRoot,
		Labels: map[string]string{
			"org.opencontainers.image.title":    Name(tag),
			"org.opencontainers.image.source":   "https://moult.dev/moult",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
		Files: map[string]File{
			entrypoint:    {Source: binary},
			"/tmp":        {Dir: true, Mode: os.ModeSticky | 0o777},
			"/etc/passwd": {Content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n")},
			"/etc/group":  {Content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		},
	}
	if tag == Operator {
		// The paths in Ducklett's image: of its program, and of the one that sets the image of scale sets.
		for _, alias := range []string{"/ducklett", "/update-azure-image-tags"} {
			spec.Files[alias] = File{Link: strings.TrimPrefix(entrypoint, "/")}
		}
	}
	if version != "" {
		spec.Labels["org.opencontainers.image.version"] = version
		// A tag cannot hold the "+" of a version's build metadata.
		if versioned := repository + ":" + strings.ReplaceAll(version, "+", "_"); versioned != tag {
			spec.Tags = append(spec.Tags, versioned)
		}
	}
	return spec
}

// Shell is an image of busybox with a link for each of its applets. The binary must be static and able to run
// here, for it is asked for their names.
func Shell(ctx context.Context, binary string) (Spec, error) {
	if err := Static(binary); err != nil {
		return Spec{}, err
	}
	list, err := exec.CommandContext(ctx, binary, "--list").Output()
	if err != nil {
		return Spec{}, fmt.Errorf("listing the applets of %s, %w", binary, err)
	}
	spec := Spec{
		Tags: []string{Busybox},
		Cmd:  []string{"sh"},
		Files: map[string]File{
			"/bin/busybox": {Source: binary},
			"/tmp":         {Dir: true, Mode: os.ModeSticky | 0o777},
			"/etc/passwd":  {Content: []byte("root:x:0:0:root:/root:/bin/sh\n")},
			"/etc/group":   {Content: []byte("root:x:0:\n")},
			"/root":        {Dir: true, Mode: 0o700},
		},
	}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			spec.Files["/bin/"+applet] = File{Link: "busybox"}
		}
	}
	return spec, nil
}

// GoBinary builds the main package pkg, as seen from the directory dir, into the static Linux binary out, with the tags of a release.
// The flags, such as -ldflags, come before the package.
func GoBinary(ctx context.Context, dir, pkg, out string, flags ...string) error {
	abs, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"build", "-o", abs}, build.Flags, flags, []string{pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s, %w:\n%s", pkg, err, output)
	}
	return nil
}

// Static returns an error unless the file is a Linux binary that needs no loader and no library: an image of it
// alone would not start otherwise.
func Static(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return fmt.Errorf("reading %s, %w", binary, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically", binary)
		}
	}
	return nil
}
