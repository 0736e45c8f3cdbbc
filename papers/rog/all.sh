#!/usr/bin/env bash
# The round of section 4.2 at 128 pixels with all its cases, on one GPU, one stage after the other: side by side they
# starve each other, and their seconds say nothing.
#
#   DATA=folder OUT=folder [NET=folder] bash papers/rog/all.sh        from the repository root
#
# DATA: imagenet128_500.zip, lpips_alex.npz; imagenette224_60.zip and utkface200_2000.zip where there are (more public
# pictures for the networks, and the faces of ROGS). NET (DATA unless given): progan.safetensors (progan_convert.py) and
# tagger.safetensors (docs/metrics.md), without which the faces or their tags are left out.
# Makes, in OUT: networks/ (enhancer and autoencoder, to be kept), reconstruct.jsonl (equal steps and time, ablation),
# presets.jsonl (rog-code, rog-paper, autoencoder), long.jsonl (a long Inverting Gradients), figure16-MODEL.jsonl,
# DEFENSE.jsonl (figures 6 to 9), batches-N.jsonl and .html (figures 13 and 14), rog-round.json (throughput),
# pictures.html, faces.jsonl and .png (table 2); log/ has what each stage said, stages.jsonl how it ended.
# A stage whose file is there is left out, so the same command goes on where it was ended; lines of a stage that was
# ended in the middle are kept as NAME.ended.
# On an H200 of its own twelve stages took 693 s (results/h200-stages.jsonl): enhancer, autoencoder (55 s of learning
# each), reconstruct, figure16-*, presets, batches-64, batches-128, precode, fedcdp up to a limit of 150 s, pictures and
# faces. The others (none, uniform, qsgd, topk, sign, soteria, batches-16, rog-round, long) have not run by it there.
# ONLY="NAME ...": these stages alone. SECONDS_TO_LEARN (80): of enhancer and autoencoder.
# PY, DEVICE (cuda), PRECISION (tf32), LIMIT (seconds of a stage, 0: none); SIZE=tiny DEVICE=cpu tries every stage.
set -u
: "${DATA:?folder with imagenet128_500.zip}" "${OUT:?folder for results}"
PY=${PY:-python3} DEVICE=${DEVICE:-cuda} PRECISION=${PRECISION:-tf32} LIMIT=${LIMIT:-0} ONLY=${ONLY:-} NET=${NET:-$DATA}
LEARNS=bf16
[ "$DEVICE" = cpu ] && PRECISION=float32 LEARNS=float32
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
HERE=papers/rog NETWORKS=$OUT/networks ON=(--device "$DEVICE" --precision "$PRECISION")
mkdir -p "$OUT/log" "$NETWORKS"

ROUND=(--root "$DATA" "${ON[@]}") MANY=4 FEW=2 LONG=2000 RATIOS=(0 -10 -20) BATCHES=(16 64 128) OTHERS=(vgg7 resnet18-plain)
TRAIN=(--epochs 100000 --seconds ${SECONDS_TO_LEARN:-80}) LATENT=2048 TIMED=(--clients 32 --chunk 32 --alone 2)
FACES=(--steps 300 --restarts 2 --groups 2 --clients 16)
if [ "${SIZE:-full}" = tiny ]; then
    ROUND+=(--size 32 --steps 2 --rate 0.1 --local-steps 2) MANY=1 FEW=1 LONG=6 RATIOS=(0) BATCHES=(16) OTHERS=(vgg7)
    TRAIN=(--epochs 100000 --seconds 4 --size 32 --width 8) LATENT=512
    TIMED=(--clients 2 --alone 1 --size 32 --batch 2 --steps 3 --local-steps 2)
    FACES=(--inner rog:steps=1 --steps 1 --restarts 1 --groups 1 --clients 1 --chunk 1)
fi

stage() { # NAME FILE COMMAND...: the command writes FILE, or FILE.part, which is FILE once it is whole
    local name=$1 file=$2 begin=$SECONDS rc=0
    shift 2
    [[ -n $ONLY && " $ONLY " != *" $name "* ]] && return
    [ -e "$file" ] && { echo "$name: there"; return; }
    timeout "$LIMIT" "$@" > "$OUT/log/$name.txt" 2>&1 || rc=$?
    [ $rc -eq 0 ] && [ -e "$file.part" ] && mv "$file.part" "$file"
    echo "{\"stage\": \"$name\", \"seconds\": $((SECONDS - begin)), \"ended with\": $rc}" | tee -a "$OUT/stages.jsonl"
    [ $rc -eq 0 ] || tail -n 4 "$OUT/log/$name.txt"
}
lines() { # NAME SCRIPT OPTIONS...: of a script that adds lines to NAME.jsonl and cannot go on in the middle
    local name=$1 script=$2 file=$OUT/$1.jsonl
    shift 2
    [ -e "$file.part" ] && cat "$file.part" >> "$file.ended" && rm "$file.part"
    stage "$name" "$file" $PY "$HERE/$script" "$@" --out "$file.part"
}

PUBLIC=(--data "imagenet:root=$DATA/imagenet128_500.zip,skip=160")
[ -f "$DATA/imagenette224_60.zip" ] && PUBLIC+=(--data "imagenet:root=$DATA/imagenette224_60.zip")
[ -f "$DATA/utkface200_2000.zip" ] && PUBLIC+=(--data "utkface:root=$DATA/utkface200_2000.zip")
LEARN=("${PUBLIC[@]}" "${TRAIN[@]}" --device "$DEVICE" --precision "$LEARNS")
ENHANCER=$NETWORKS/enhancer.safetensors AUTOENCODER=$NETWORKS/autoencoder.safetensors
stage enhancer "$ENHANCER" $PY -m gradveil train-generator enhancer "${LEARN[@]}" --out "$ENHANCER"
stage autoencoder "$AUTOENCODER" $PY -m gradveil train-generator autoencoder "${LEARN[@]}" --latent $LATENT --out "$AUTOENCODER"

ENHANCED=("${ROUND[@]}" --enhancer "$ENHANCER")
lines reconstruct reconstruct.py "${ENHANCED[@]}" --clients $MANY --cases rog invertgrad "no projection"
for model in "${OTHERS[@]}"; do
    lines "figure16-$model" reconstruct.py "${ENHANCED[@]}" --clients 1 --models "$model" --cases rog invertgrad
done
lines presets reconstruct.py "${ENHANCED[@]}" --clients $MANY --autoencoder "$AUTOENCODER" --cases "rog + autoencoder" rog-code rog-paper
for size in "${BATCHES[@]}"; do
    lines "batches-$size" batches.py "${ROUND[@]}" --clients 1 --batches "$size" --page "$OUT/batches-$size.html"
done
for defense in none precode uniform qsgd topk sign soteria; do
    lines "$defense" obfuscation.py "${ROUND[@]}" --clients $FEW --only "$defense"
done
lines fedcdp obfuscation.py "${ROUND[@]}" --clients $FEW --only fedcdp --ratios "${RATIOS[@]}"
lines pictures pictures.py "${ENHANCED[@]}" --aware --page "$OUT/pictures.html"
stage rog-round "$OUT/rog-round.json" $PY benchmarks/rog_round.py "${ON[@]}" "${TIMED[@]}" --out "$OUT/rog-round.json"
if [ -f "$DATA/utkface200_2000.zip" ] && [ -f "$NET/progan.safetensors" ]; then
    TAGS=()
    [ -f "$NET/tagger.safetensors" ] && TAGS=(--tagger "$NET/tagger.safetensors")
    lines faces semantic.py faces --root "$DATA" "${ON[@]}" --generator "$NET/progan.safetensors" "${TAGS[@]}" "${FACES[@]}" --sheet "$OUT/faces.png"
fi
lines long reconstruct.py "${ENHANCED[@]}" --clients 1 --cases rog "invertgrad long" --long $LONG # last: the longest
