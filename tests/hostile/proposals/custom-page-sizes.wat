;; attack: Uses pages of one byte, which no policy needs.
;; expect: load -> structure (memories)
;; proposal: CUSTOM_PAGE_SIZES

;; in core:
(memory 1 (pagesize 1))
