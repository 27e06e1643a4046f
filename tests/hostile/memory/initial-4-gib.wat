;; attack: Declares 65,536 pages.
;; expect: load -> structure (memory_pages)
;; memory: 65536
