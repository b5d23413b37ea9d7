// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOMs writes which modules each program has, as Go's linker wrote into it.
func (r *release) writeSBOMs(context.Context) error {
	for _, p := range r.programs {
		info, err := buildinfo.ReadFile(p.file)
		if err != nil {
			return err
		}
		sum, err := checksum(p.file)
		if err != nil {
			return err
		}
		bom := sbom(p, info, r.Version, r.created)
		bom.Metadata.Component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}
		var b bytes.Buffer
		// Scanners lag behind the newest version.
		if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_5); err != nil {
			return err
		}
		if err := r.write(b.Bytes(), "sbom", p.name+"_"+p.platform()+".cdx.json"); err != nil {
			return err
		}
	}
	return nil
}

// sbom lists the modules of one program, and Go's standard library. It has no serial number, which would be random.
func sbom(p program, info *buildinfo.BuildInfo, version string, created time.Time) *cdx.BOM {
	main := module(info.Main.Path, version)
	main.Type, main.Name = cdx.ComponentTypeApplication, p.name
	main.PackageURL += "?goarch=" + p.arch + "&goos=" + p.os + "#cmd/" + p.name
	main.BOMRef = main.PackageURL
	components := []cdx.Component{module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		components = append(components, module(cmp.Or(dep.Replace, dep).Path, cmp.Or(dep.Replace, dep).Version))
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom
}

// module is one Go module.
func module(path, version string) cdx.Component {
	// The + of +incompatible and of build metadata is written as in a URL.
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}
