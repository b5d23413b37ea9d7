module moult.dev/moult/hack/release

go 1.26.0

replace moult.dev/moult => ../..
