//! Static files, embedded in the program. They are public: no data is in them.

static ASSETS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A static file of the page, with the Content-Type that it is served with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    pub content_type: &'static str,
    pub bytes: &'static [u8],
}

/// Returns the file at this path: `/`, or `/assets/NAME`.
pub fn at(path: &str) -> Option<Asset> {
    let name = match path {
        "/" => "index.html",
        path => path.strip_prefix("/assets/")?,
    };
    let (name, bytes) = ASSETS.iter().find(|(asset, _)| *asset == name)?;
    Some(Asset {
        content_type: content_type(name)?,
        bytes,
    })
}

fn content_type(name: &str) -> Option<&'static str> {
    Some(match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_at_the_root_and_under_its_name() {
        let page = at("/").unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        assert_eq!(at("/assets/index.html"), Some(page));
    }

    #[test]
    fn every_embedded_file_has_a_content_type() {
        for (name, _) in ASSETS {
            assert!(at(&format!("/assets/{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn nothing_else_is_served() {
        for path in [
            "",
            "/x",
            "/assets/",
            "/assets/../Cargo.toml",
            "/assets/%2e%2e",
            "//",
            "/assets",
        ] {
            assert_eq!(at(path), None, "{path}");
        }
    }
}
