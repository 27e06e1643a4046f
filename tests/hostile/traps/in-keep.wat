;; attack: `keep` traps.
;; expect: keep -> trap

;; in keep:
unreachable
