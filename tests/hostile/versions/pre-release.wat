;; attack: A stage of a pre-release of this version.
;; expect: load -> version

;; in exports:
(export "pointsman:policy/worker-filter@0.1.0-rc.1" (instance $score_exported))
