//! Sequential requests with gaps: the strided zones of `zonemode`, and the number after the colon in `rw=read:64k`.
//! Both are translated to a stride.

use brunt_core::Size;
use brunt_load::Workload;
use brunt_load::block::stride::Stride;

use super::Draft;
use crate::error::FioError;

impl Draft<'_> {
    /// Translates `zonemode`: with `strided`, the given part of each zone is accessed and the rest is skipped.
    pub(super) fn zones(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let size = self.size("zonesize")?.filter(|size| *size > 0);
        let size = match (self.text("zonemode"), size) {
            (Some("strided"), Some(size)) => size,
            (None | Some("none"), None) => return Ok(()),
            // Already reported as a loss.
            (Some("zbd"), _) => return Ok(()),
            (None | Some("none"), Some(_)) => {
                return Err(self.wrong("zonesize", "zonemode=strided with it"));
            }
            (Some("strided"), None) => {
                return Err(self.wrong("zonemode", "strided with a zonesize"));
            }
            (Some(_), _) => return Err(self.wrong("zonemode", "none or strided")),
        };
        let range = self
            .size("zonerange")?
            .filter(|range| *range > 0)
            .unwrap_or(size);
        let skip = self.size_here("zoneskip")?.unwrap_or(0);
        if range < size {
            self.lose(
                "zonerange",
                "a zone is covered once; fio revisits it until zonesize bytes have been transferred",
            );
            return Ok(());
        }
        let skip = (range - size).saturating_add(skip);
        if workload.sequential < 1.0 {
            self.lose(
                "zonemode",
                "random requests confined to one zone at a time are not supported",
            );
        } else if workload.stride.is_some() {
            self.lose("zonemode", "rw already skips some bytes after each request");
        } else if skip > 0 {
            workload.stride = Some(Stride {
                run: Some(Size(size)),
                skip: Some(Size(skip)),
                back: None,
            });
        }
        Ok(())
    }

    /// Translates the number after the colon in `rw`: bytes between sequential requests, or the number of sequential
    /// requests after each random one.
    pub(super) fn sequencer(
        &mut self,
        text: &str,
        workload: &mut Workload,
    ) -> Result<(), FioError> {
        if workload.sequential < 1.0 {
            if text != "1" {
                let why = format!(
                    "a random offset for each group of {text} requests is not supported: write sequential = 0.9"
                );
                self.lose("rw", why);
            }
            return Ok(());
        }
        let (back, bytes) = text
            .strip_prefix('-')
            .map_or((false, text), |bytes| (true, bytes));
        let bytes = crate::units::size(bytes, self.kb_base);
        let bytes = bytes.ok_or_else(|| self.wrong("rw", "a size such as 8k after the colon"))?;
        workload.stride = match (bytes, back) {
            (0, _) => None,
            (bytes, false) => Some(Stride {
                skip: Some(Size(bytes)),
                ..Stride::default()
            }),
            (bytes, true) => Some(Stride {
                back: Some(Size(bytes)),
                ..Stride::default()
            }),
        };
        Ok(())
    }

    /// The number of passes that a job without a size makes over its device: fio transfers as many bytes as the
    /// device holds, regardless of how much it skips in each pass.
    pub(super) fn passes(&mut self, workload: &Workload) -> u64 {
        let Some(stride) = workload.stride else {
            return 1;
        };
        let each = 1.0 / stride.share(workload.block_bytes_max() as f64);
        let is_whole = (each - each.round()).abs() < 1e-9;
        if !is_whole || (workload.blocks.varies() && stride.run.is_none()) {
            let key = if stride.run.is_some() {
                "zoneskip"
            } else {
                "rw"
            };
            let why = "the skipped part is not a multiple of the covered part, so there is no whole \
             number of passes: write size=";
            self.lose(key, why);
        }
        each.round() as u64
    }
}
